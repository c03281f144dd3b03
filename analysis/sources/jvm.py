"""A topic, read through Spark's own Kafka connector, where its jars are."""

from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

from analysis.errors import AnalysisError

# A class of each jar: Spark looks for the last three only when the stream runs.
_JARS: Final = {
    "spark-sql-kafka-0-10": "org.apache.spark.sql.kafka010.KafkaSourceProvider",
    "spark-token-provider-kafka-0-10": "org.apache.spark.kafka010.KafkaTokenUtil",
    "kafka-clients": "org.apache.kafka.clients.consumer.KafkaConsumer",
    "commons-pool2": "org.apache.commons.pool2.impl.GenericKeyedObjectPool",
}


@dataclass(frozen=True, slots=True)
class Connector:
    """What of the connector is on the class path."""

    version: str | None
    """None: the connector itself is not there."""
    missing: tuple[str, ...]
    """Jars that it needs and that are not there."""


def find(spark: SparkSession) -> Connector:
    """Look for the connector and what it needs."""
    context: Any = spark.sparkContext
    jvm = context._jvm  # noqa: SLF001  the only way to the class path
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    places = {jar: loader.getResource(f"{name.replace('.', '/')}.class") for jar, name in _JARS.items()}
    missing = tuple(jar for jar, place in places.items() if place is None)
    place = places["spark-sql-kafka-0-10"]
    return Connector(version_in(place.toString()) if place is not None else None, missing)


def check(connector: Connector, spark_version: str) -> None:
    """Raise AnalysisError unless the connector is complete, and of this Spark: another's fails when the stream runs."""
    advice = f"--conf spark.jars.packages={coordinates(spark_version)}, or --source python"
    if connector.version is None:
        raise AnalysisError(f"Spark's Kafka connector is not there: give {advice}")
    if _minor(connector.version) != _minor(spark_version):
        raise AnalysisError(
            f"the Kafka connector is of Spark {connector.version}, this is {spark_version}: give {advice}"
        )
    if connector.missing:
        raise AnalysisError(f"the Kafka connector lacks {', '.join(connector.missing)}: give {advice}")


def coordinates(spark_version: str) -> str:
    """Return what ``--packages`` takes."""
    return f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark_version}"


def version_in(place: str) -> str:
    """Return the version in a jar's name: ``jar:file:/…/spark-sql-kafka-0-10_2.13-4.2.0.jar!/…``."""
    return place.partition(".jar!")[0].rpartition("-")[2]


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]
