import pytest

from analysis.errors import AnalysisError
from analysis.sources.jvm import Connector, check, version_in

WHOLE = Connector("4.2.0", ())


@pytest.mark.parametrize(
    "place",
    [
        "jar:file:/jars/spark-sql-kafka-0-10_2.13-4.2.0.jar!/org/apache/spark/sql/kafka010/KafkaSourceProvider.class",
        "jar:file:/ivy/org.apache.spark_spark-sql-kafka-0-10_2.13-4.2.0.jar!/org/apache/spark/sql/K.class",
    ],
)
def test_the_version_is_in_the_name_of_the_jar(place: str) -> None:
    assert version_in(place) == "4.2.0"


def test_another_patch_will_do() -> None:
    check(WHOLE, "4.2.1")


@pytest.mark.parametrize(
    ("connector", "said"),
    [
        (Connector(None, ("spark-sql-kafka-0-10",)), "is not there"),
        (Connector("4.1.3", ()), "is of Spark 4.1.3, this is 4.2.1"),
        (Connector("4.2.1", ("kafka-clients", "commons-pool2")), "lacks kafka-clients, commons-pool2"),
    ],
)
def test_one_that_will_not_do(connector: Connector, said: str) -> None:
    with pytest.raises(AnalysisError, match=rf"{said}.*spark-sql-kafka-0-10_2.13:4.2.1"):
        check(connector, "4.2.1")
