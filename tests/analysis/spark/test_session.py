"""What is decided before a session starts; the session of these tests is one itself."""

import pytest
from pyspark.sql import SparkSession

from analysis.errors import AnalysisError
from analysis.spark import session
from analysis.spark.session import SparkSettings


@pytest.mark.spark
def test_the_session_is_in_utc(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.master == "local[2]"


def test_session_with_wrong_java_home_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(AnalysisError, match="JAVA_HOME is /nowhere, and there is no bin/java"):
        session.start("test")


def test_session_without_java_says_which_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(AnalysisError, match="there is no Java: install 17 or newer"):
        session.start("test")


def test_session_with_old_pyspark_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", "3.5.1")
    with pytest.raises(AnalysisError, match=r"pyspark 3\.5\.1 is not supported"):
        session.start("test", SparkSettings("local[1]"))


def test_spark_submit_has_chosen_master_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    chosen = session.chosen(SparkSettings())
    assert not {"spark.master", "spark.driver.memory", "spark.sql.shuffle.partitions"} & chosen.keys()


def test_local_session_uses_all_cores_and_few_partitions() -> None:
    chosen = session.chosen(SparkSettings(conf={"spark.driver.memory": "3g"}))
    assert chosen["spark.master"] == "local[*]"
    assert chosen["spark.driver.memory"] == "3g"
    assert int(chosen["spark.sql.shuffle.partitions"]) < 200


@pytest.mark.parametrize(
    ("package", "older"),
    [
        (f"{session._SOURCE}:4.2.1", f"{session._SOURCE}:4.2.0"),
        (f"{session._SOURCE}:4.2.0", None),
        ("org.apache.hadoop:hadoop-aws:3.5.1", None),
        ("", None),
    ],
)
def test_older_kafka_source_is_the_patch_release_before(package: str, older: str | None) -> None:
    assert session._older(package) == older


@pytest.mark.parametrize(("conf", "hint"), [({}, False), ({"spark.jars.packages": "a:b:1"}, True)])
def test_failed_start_that_fetches_jars_suggests_a_jar_folder(conf: dict[str, str], hint: bool) -> None:
    assert ("--jars DIR" in session._not_started("[JAVA_GATEWAY_EXITED] …", conf)) is hint
