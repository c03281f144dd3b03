"""Errors of brokers, logins and topics are one line each: by real brokers, with every listener that they can have."""

import asyncio
import socket
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from analysis.errors import AnalysisError
from analysis.ingest.job import Ingestion, Tally
from analysis.ingest.kafka import Topic
from analysis.ingest.running import run
from analysis.spark import session
from analysis.spark.session import SparkSettings
from tests.analysis.records import document, row
from tests.harness.jars import SPARK_KAFKA, jar_dir
from tests.harness.kafka import KafkaCluster
from tests.harness.ports import free_port
from tests.harness.secure import MTLS, SASL, SASL_TLS, SecureCluster
from tests.integration.conftest import fresh_name
from tests.integration.test_ingest import send

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(300)]

USER = "alice"


@pytest.fixture(scope="module")
def topic(secure_cluster: SecureCluster) -> str:
    name = fresh_name("checked")
    secure_cluster.cluster.create_topic(name)
    return name


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A session with Spark's Kafka source, whose Java client asks the brokers."""
    conf = {"spark.driver.memory": "512m", "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    running = session.start("preflight", session.with_jars(SparkSettings("local[1]", conf), jar_dir(SPARK_KAFKA.name)))
    yield running
    running.stop()


@pytest.fixture(scope="module")
def silent() -> Iterator[str]:
    """The address of somebody who accepts and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def login(user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    jaas = f'org.apache.kafka.common.security.{module} required username="{user}" password="{password}";'
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}


def trusted(authority: Path) -> dict[str, str]:
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(authority)}


def ask(spark: SparkSession, topic: Topic) -> None:
    topic.reach()
    assert topic.ask(spark)


def refusal(spark: SparkSession, bootstrap: str, topic: str, properties: Mapping[str, str] | None = None) -> str:
    """Return the one line that says why, of a topic that cannot be asked for."""
    with pytest.raises(AnalysisError) as refused:
        ask(spark, Topic(topic, bootstrap, properties or {}))
    (line,) = str(refused.value).splitlines()
    return line


@pytest.fixture(scope="module")
def timed_out(
    spark: SparkSession, cluster: KafkaCluster, secure_cluster: SecureCluster, silent: str, topic: str
) -> dict[str, str]:
    """What is said where brokers let Java's client wait until it gives up: all at the same time."""
    asked = {
        "silent": (silent, {}),
        "no login": (secure_cluster.cluster.bootstrap_of(SASL), {}),
        "no TLS": (secure_cluster.cluster.bootstrap_of(MTLS), {}),
        "TLS": (cluster.bootstrap, {"security.protocol": "SSL"}),
    }
    with ThreadPoolExecutor(len(asked)) as threads:
        said = threads.map(lambda each: refusal(spark, each[0], topic, each[1]), asked.values())
        return dict(zip(asked, said, strict=True))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_preflight_accepts_correct_sasl_login(
    spark: SparkSession, secure_cluster: SecureCluster, topic: str, mechanism: str
) -> None:
    properties = login(USER, secure_cluster.passwords[USER], mechanism)
    assert Topic(topic, secure_cluster.cluster.bootstrap_of(SASL), properties).ask(spark)


def test_preflight_accepts_sasl_login_over_tls(spark: SparkSession, secure_cluster: SecureCluster, topic: str) -> None:
    properties = login(USER, secure_cluster.passwords[USER]) | trusted(secure_cluster.authority.certificate)
    properties["security.protocol"] = "SASL_SSL"
    assert Topic(topic, secure_cluster.cluster.bootstrap_of(SASL_TLS), properties).ask(spark)


def test_a_topic_is_ingested_within_tls(spark: SparkSession, secure_cluster: SecureCluster, tmp_path: Path) -> None:
    """By a file, as ``--kafka-config`` takes it: the executors' consumers log in, too."""
    name = fresh_name("ingested")
    secure_cluster.cluster.create_topic(name)
    asyncio.run(send(secure_cluster.cluster.bootstrap, name, [document(seq, [row("alice")]) for seq in range(3)]))
    properties = login(USER, secure_cluster.passwords[USER]) | trusted(secure_cluster.authority.certificate)
    properties["security.protocol"] = "SASL_SSL"
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()), encoding="utf-8")
    topic = Topic.load(name, secure_cluster.cluster.bootstrap_of(SASL_TLS), config)
    ingestion = Ingestion(topic.source(spark, 10, accept_loss=False), str(tmp_path / "warehouse"), lambda _: None)
    run(ingestion, str(tmp_path / "checkpoint"), None)
    assert ingestion.total == Tally(documents=3, rows=3)


def test_preflight_accepts_client_certificate(spark: SparkSession, secure_cluster: SecureCluster, topic: str) -> None:
    shown = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(secure_cluster.proxy.both)}
    properties = {"security.protocol": "SSL", **trusted(secure_cluster.authority.certificate), **shown}
    assert Topic(topic, secure_cluster.cluster.bootstrap_of(MTLS), properties).ask(spark)


def test_preflight_of_closed_port_names_the_address(spark: SparkSession, topic: str) -> None:
    port = free_port()
    assert f"127.0.0.1:{port}: " in (said := refusal(spark, f"127.0.0.1:{port}", topic))
    assert "check --bootstrap" in said


def test_preflight_of_unknown_host_names_it(spark: SparkSession, topic: str) -> None:
    assert "no-such-host.invalid is no known host" in refusal(spark, "no-such-host.invalid:9092", topic)


def test_preflight_of_silent_broker_reports_no_answer(timed_out: dict[str, str], silent: str, topic: str) -> None:
    assert timed_out["silent"].startswith(f"{silent}, topic {topic}: no answer: ")


def test_preflight_of_missing_topic_does_not_create_it(spark: SparkSession, cluster: KafkaCluster) -> None:
    name = fresh_name("nowhere")
    for _ in range(2):
        assert f"topic {name}: it is not there" in refusal(spark, cluster.bootstrap, name)


def test_preflight_with_wrong_password_reports_refused_login(
    spark: SparkSession, secure_cluster: SecureCluster, topic: str
) -> None:
    said = refusal(spark, secure_cluster.cluster.bootstrap_of(SASL), topic, login(USER, "a wrong one"))
    assert "the brokers refuse the login" in said
    assert "a wrong one" not in said


def test_preflight_without_required_login_names_security_protocol(timed_out: dict[str, str]) -> None:
    assert "security.protocol" in timed_out["no login"]


def test_preflight_without_required_tls_names_security_protocol(timed_out: dict[str, str]) -> None:
    assert "security.protocol" in timed_out["no TLS"]


def test_preflight_with_tls_on_plaintext_listener_names_security_protocol(timed_out: dict[str, str]) -> None:
    assert "security.protocol" in timed_out["TLS"]


def test_preflight_with_untrusted_authority_names_the_truststore(
    spark: SparkSession, secure_cluster: SecureCluster, topic: str
) -> None:
    properties = {"security.protocol": "SSL", **trusted(secure_cluster.stranger_authority.certificate)}
    said = refusal(spark, secure_cluster.cluster.bootstrap_of(MTLS), topic, properties)
    assert "ssl.truststore.location" in said
