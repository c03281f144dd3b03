"""Where the sums and the rows of a period come from: tables of gold, and Spark for the rows."""

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.errors import AnalysisError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyspark.sql import DataFrame

    from analysis.spark.session import SparkSettings


def gold(warehouse: str, begin: datetime | None, end: datetime | None) -> "DuckDBPyConnection":
    """Return the tables of gold for a period. Raises AnalysisError where there are none."""
    import duckdb

    root = Path(warehouse) / "gold"
    con = duckdb.connect()
    for name in ("client", "charged", "counters", "readings", "documents"):
        paths: list[str] = []
        for made in sorted(root.glob("made/*.json")):
            said = json.loads(made.read_text())
            for hour in said["hours"]:
                paths += map(str, (root / f"{name}_hour" / made.stem / f"hour={hour}").glob("*.parquet"))
        if not paths:
            raise AnalysisError(f"{warehouse}: there is no gold")
        con.execute(f"CREATE VIEW {name} AS FROM read_parquet({paths!r}, hive_partitioning = true)")
    return con


def charges(
    name: str, settings: "SparkSettings", warehouse: str, begin: datetime | None, end: datetime | None
) -> "DataFrame":
    """Return who was charged what in a period, row by row (``analysis.charges``), in a session that this starts."""
    from pyspark.sql.functions import coalesce, col, lit

    from analysis import charges as tall
    from analysis.schema import COLUMNS, ROWS
    from analysis.spark import session

    spark = session.start(name, settings)
    rows = spark.read.schema(ROWS).parquet(f"{warehouse.rstrip('/')}/usage")
    if begin is not None:
        rows = rows.where(col("date") >= begin.date()).where(col("time") >= begin)
    if end is not None:
        rows = rows.where(col("date") <= end.date()).where(col("time") < end)
    missing = {each.name: coalesce(col(each.name), lit(each.missing)) for each in COLUMNS if each.missing is not None}
    rows.withColumns(missing).createOrReplaceTempView("usage")
    return tall.charges(spark)
