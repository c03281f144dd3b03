"""Where the sums and the rows of a period come from: tables of gold, and Spark for the rows."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from analysis.errors import AnalysisError
from analysis.warehouse import Period, opened
from quotas.kinds import QuotaKind

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyspark.sql import DataFrame

    from analysis.spark.session import SparkSettings


Charges = Callable[[pa.Table, Iterable[tuple[QuotaKind, str]]], "DataFrame"]
"""Rows of the clients in a table of NAMES, of kinds and roles that are known to be there."""
_TABLES: Final = ("client", "charged", "counters", "readings", "documents")


def gold(warehouse: str, period: Period) -> "DuckDBPyConnection":
    """Return the tables of gold for a period. Raises AnalysisError where there are none."""
    import duckdb

    try:
        return opened(warehouse, period, _TABLES)
    except duckdb.Error as error:
        raise AnalysisError(f"{warehouse}: gold cannot be read: {error}") from None


def charges(name: str, settings: "SparkSettings", warehouse: str, period: Period) -> Charges:
    """Return a reader of the rows of some clients (``analysis.charges``), which starts a session when it is called."""

    def read(clients: pa.Table, present: Iterable[tuple[QuotaKind, str]]) -> "DataFrame":
        from pyspark.sql.functions import broadcast, coalesce, col, lit

        from analysis import charges as tall
        from analysis.schema import COLUMNS, ROWS
        from analysis.spark import session
        from analysis.spark.progress import to_stderr

        to_stderr(f"{name}: not all is in the tables of gold; Spark reads rows")
        spark = session.start(name, settings)
        rows = spark.read.schema(ROWS).parquet(f"{warehouse.rstrip('/')}/usage")
        if period.begin is not None:
            rows = rows.where(col("date") >= period.begin.date()).where(col("time") >= period.begin)
        if period.end is not None:
            rows = rows.where(col("date") <= period.end.date()).where(col("time") < period.end)
        rows = rows.join(broadcast(spark.createDataFrame(clients)), clients.column_names, "left_semi")
        worth = {each.name: lit(each.missing) for each in COLUMNS if each.missing is not None}
        rows = rows.withColumns({name: coalesce(col(name), value) for name, value in worth.items()})
        rows.createOrReplaceTempView("usage")
        return tall.charges(spark, "usage", present)

    return read
