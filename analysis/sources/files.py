"""Files of usage records, one document a line: ``*.jsonl`` in a directory or below it, each complete when seen."""

from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.errors import AnalysisError
from analysis.spark.folder import Folder

_BYTES_PER_DOCUMENT: Final = 90_000
"""Of a document of a thousand rows."""
_NEVER: Final = "36500d"
"""Spark ignores a file that is older than the newest one by more than this; here, what comes late is read."""


def stream(spark: SparkSession, directory: str, documents: int) -> DataFrame:
    """Return documents (``place.SOURCE``), about so many a batch. Raises AnalysisError where there is no directory."""
    if not Folder(spark, directory).exists():
        raise AnalysisError(f"{directory}: there is no such directory; --files is usage.files.directory of sluice.yaml")
    reader = spark.readStream.format("text").options(
        pathGlobFilter="*.jsonl",
        recursiveFileLookup="true",
        maxFileAge=_NEVER,
        maxBytesPerTrigger=str(documents * _BYTES_PER_DOCUMENT),
    )
    none = F.lit(None)
    return reader.load(directory).select(
        "value",
        none.cast("string").alias("topic"),
        none.cast("int").alias("partition"),
        F.col("_metadata.file_block_start").alias("offset"),
        F.col("_metadata.file_path").alias("file"),
    )
