"""Documents of a topic, by whichever source there is."""

from enum import StrEnum
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.sources import jvm, python_kafka
from analysis.sources.place import KEPT_BYTES
from analysis.sources.python_kafka import Topic
from analysis.table.schema import MOST_DOCUMENT_BYTES

_LOG_APPEND_TIME: Final = 1
_PATIENCE: Final = {"kafka.request.timeout.ms": "15000", "kafka.default.api.timeout.ms": "20000"}
"""Of Java's clients, which Spark has ask three times: by default, brokers are known to be away after three minutes."""


class Source(StrEnum):
    """Who reads the topic."""

    AUTO = "auto"
    """The connector where its jars are, else Python."""
    JVM = "jvm"
    PYTHON = "python"


def stream(spark: SparkSession, topic: Topic, source: Source) -> tuple[DataFrame, Source]:
    """Return documents (``place.SOURCE``), and who reads them. Raises AnalysisError where no connector will do."""
    connector = jvm.find(spark) if source is not Source.PYTHON else None
    if connector is None or (source is Source.AUTO and connector.version is None):
        spark.dataSource.register(python_kafka.KafkaSource)
        read = spark.readStream.format(python_kafka.NAME).options(**topic.options()).load()
        return _whole(read), Source.PYTHON
    jvm.check(connector, spark.version)
    reader = (
        spark.readStream.format("kafka")
        .options(**_PATIENCE)
        .options(**topic.connection.for_spark())
        .options(
            subscribe=topic.name,
            startingOffsets="earliest",
            maxOffsetsPerTrigger=str(topic.documents),
            minPartitions=str(2 * spark.sparkContext.defaultParallelism),
            failOnDataLoss=str(not topic.accept_loss).lower(),
        )
    )
    reader = reader.options(**{"kafka.isolation.level": "read_committed", "kafka.max.poll.records": "1"})
    return _whole(_of_connector(reader.load())), Source.JVM


def _of_connector(read: DataFrame) -> DataFrame:
    """Return what the connector has of SOURCE; what is too large is cut before anybody else copies it."""
    size = F.octet_length("value")
    kept = F.when(size <= MOST_DOCUMENT_BYTES, F.col("value")).otherwise(F.substring("value", 1, KEPT_BYTES))
    by_broker = F.when(F.col("timestampType") == _LOG_APPEND_TIME, F.expr("unix_millis(timestamp)"))
    return read.select(
        kept.alias("value"),
        F.coalesce(size, F.lit(0)).cast("long").alias("size"),
        by_broker.alias("stamped_ms"),
        F.lit(None).cast("string").alias("fault"),
        *("topic", "partition", "offset"),
    )


def _whole(read: DataFrame) -> DataFrame:
    """Return all of SOURCE: of a topic, nothing is of a file."""
    return read.withColumns({"file": F.lit(None).cast("string"), "line": F.lit(None).cast("long")})
