"""DuckDB on the tables that Spark made: does everything come out that went in?"""

from pathlib import Path

import duckdb

from bench.analysis.generated import Generated
from bench.errors import BenchError


def require_all(world: Generated) -> None:
    """Raise BenchError unless the warehouse has exactly what was generated: figures of lost rows are worth nothing."""
    names = list(world.sums)
    sums = ", ".join(f"sum({name})::BIGINT" for name in names)
    found = _ask(f"SELECT count(*), count(DISTINCT (instance, boot, seq)), {sums} FROM {usage(world.warehouse)}")  # noqa: S608  names of ours
    expected = [world.rows, world.documents, *world.sums.values()]
    wrong = [
        f"{name} {have:,} instead of {should:,}"
        for name, have, should in zip(["rows", "documents", *names], found, expected, strict=True)
        if have != should
    ]
    if wrong:
        raise BenchError(f"the warehouse does not have what was generated: {', '.join(wrong)}")


def usage(warehouse: Path) -> str:
    """Return the table function over all rows of a warehouse."""
    return f"read_parquet('{warehouse}/usage/*/*/*/*.parquet', hive_partitioning = true)"


def _ask(query: str) -> list[int]:
    with duckdb.connect() as connection:
        connection.execute("SET memory_limit = '4GB'")
        row = connection.execute(query).fetchone()
    assert row is not None  # noqa: S101  aggregates have a row
    return list(row)
