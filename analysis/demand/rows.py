"""Where the sums and the rows of a period come from: tables of gold, and Spark for the rows."""

from datetime import datetime
from typing import TYPE_CHECKING, Final

from analysis.errors import AnalysisError
from analysis.warehouse import Period, opened

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyspark.sql import DataFrame

    from analysis.spark.session import SparkSettings


_TABLES: Final = ("client", "charged", "counters", "readings", "documents")


def gold(warehouse: str, begin: datetime | None, end: datetime | None) -> "DuckDBPyConnection":
    """Return the tables of gold for a period. Raises AnalysisError where there are none."""
    import duckdb

    try:
        return opened(warehouse, Period.around(begin, end), _TABLES)
    except duckdb.Error as error:
        raise AnalysisError(f"{warehouse}: gold cannot be read: {error}") from None


def charges(
    name: str, settings: "SparkSettings", warehouse: str, begin: datetime | None, end: datetime | None
) -> "DataFrame":
    """Return who was charged what in a period, row by row (``analysis.charges``), in a session that this starts."""
    from pyspark.sql.functions import coalesce, col, lit

    from analysis import charges as tall
    from analysis.schema import COLUMNS, ROWS
    from analysis.spark import session
    from analysis.spark.progress import to_stderr

    to_stderr(f"{name}: not all is in the tables of gold; Spark reads rows")
    spark = session.start(name, settings)
    rows = spark.read.schema(ROWS).parquet(f"{warehouse.rstrip('/')}/usage")
    period = Period.around(begin, end)
    if period.begin is not None:
        rows = rows.where(col("date") >= period.begin.date()).where(col("time") >= period.begin)
    if period.end is not None:
        rows = rows.where(col("date") <= period.end.date()).where(col("time") < period.end)
    missing = {each.name: coalesce(col(each.name), lit(each.missing)) for each in COLUMNS if each.missing is not None}
    rows.withColumns(missing).createOrReplaceTempView("usage")
    return tall.charges(spark)
