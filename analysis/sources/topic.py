"""Documents of a topic, by whichever source there is."""

from enum import StrEnum

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.sources import jvm, python_kafka
from analysis.sources.python_kafka import Topic


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
        return _with_place(read), Source.PYTHON
    jvm.check(connector, spark.version)
    reader = (
        spark.readStream.format("kafka")
        .options(**topic.connection.for_spark())
        .options(
            subscribe=topic.name,
            startingOffsets="earliest",
            maxOffsetsPerTrigger=str(topic.documents),
            minPartitions=str(2 * spark.sparkContext.defaultParallelism),
            failOnDataLoss=str(not topic.accept_loss).lower(),
        )
    )
    return _with_place(reader.option("kafka.isolation.level", "read_committed").load()), Source.JVM


def _with_place(read: DataFrame) -> DataFrame:
    text = F.coalesce(F.col("value").cast("string"), F.lit(""))
    return read.select(text.alias("value"), "topic", "partition", "offset", F.lit(None).cast("string").alias("file"))
