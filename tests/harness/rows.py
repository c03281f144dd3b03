"""Rows of a warehouse with their names, as an engine reads them that knows nothing of Sluice."""

from pathlib import Path


def usage(warehouse: Path | str) -> str:
    """Return DuckDB's FROM clause."""
    usage, keys = (
        f"read_parquet('{warehouse}/{table}/*/*/*/*.parquet', union_by_name = true, hive_partitioning = true)"
        for table in ("usage", "keys")
    )
    return f"{usage} JOIN (SELECT DISTINCT * EXCLUDE (date, hour, batch) FROM {keys}) USING (key)"  # noqa: S608  names of ours
