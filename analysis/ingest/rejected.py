"""What could not be read, kept aside: a file for each batch that has any, with the text as the bytes that it was."""

from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.sources.place import KEPT_BYTES, PLACE
from analysis.spark.folder import Folder
from analysis.table import warehouse as tables

COLUMNS: Final = (*PLACE, "fault", "size", "value")
"""``value``: the first KEPT_BYTES, of ``size``."""
_ASIDE: Final = f".{tables.REJECTED}-new"


def store(rejected: DataFrame, warehouse: str, batch: str) -> None:
    """Keep what a batch has, for what an earlier try of it left."""
    place = f"{tables.path_of(warehouse, tables.REJECTED)}/batch={batch}"
    rejected.select(*COLUMNS).coalesce(1).write.mode("overwrite").option("compression", "zstd").parquet(place)


def bring_up_to_date(spark: SparkSession, warehouse: str) -> None:
    """Make bytes of the texts that an earlier version kept as strings: they need not be UTF-8, and DuckDB wants that.

    Killed at any moment, it is done again: that it is done is noted last.
    """
    folder = Folder(spark, warehouse)
    if not tables.has_old_rejected(folder):
        return
    if folder.exists(tables.REJECTED):
        found = spark.read.parquet(tables.path_of(warehouse, tables.REJECTED))
        if dict(found.dtypes)["value"] == "string":
            value = F.col("value").cast("binary")
            kept = {"size": F.octet_length(value).cast("long"), "value": F.substring(value, 1, KEPT_BYTES)}
            aside = found.withColumns(kept).select(*COLUMNS, "batch").write.mode("overwrite").partitionBy("batch")
            aside.option("compression", "zstd").parquet(tables.path_of(warehouse, _ASIDE))
            folder.move(_ASIDE, tables.REJECTED)
    elif folder.exists(f"{_ASIDE}/_SUCCESS"):
        folder.move(_ASIDE, tables.REJECTED)
    tables.mark(folder)
