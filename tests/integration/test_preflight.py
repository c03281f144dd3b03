"""What is wrong is said before Spark starts: by real brokers, with every listener that they can have."""

import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from analysis.sources import preflight
from analysis.sources.connection import Connection

from analysis.errors import AnalysisError
from tests.harness.broker import PLAIN
from tests.harness.kafka import KafkaCluster
from tests.harness.ports import free_port
from tests.harness.secure import MTLS, SASL, SASL_TLS, SecureCluster
from tests.integration.conftest import fresh_name

pytestmark = pytest.mark.integration

USER = "alice"


@pytest.fixture(scope="module")
def topic(secure_cluster: SecureCluster) -> str:
    name = fresh_name("checked")
    secure_cluster.cluster.create_topic(name)
    return name


@pytest.fixture
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


def refusal(bootstrap: str, topic: str, properties: Mapping[str, str] | None = None) -> str:
    with pytest.raises(AnalysisError) as refused:
        preflight.check(Connection(bootstrap, properties or {}), topic, python=True)
    (line,) = str(refused.value).splitlines()
    return line


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_login_that_is_right(secure_cluster: SecureCluster, topic: str, mechanism: str) -> None:
    properties = login(USER, secure_cluster.passwords[USER], mechanism)
    preflight.check(Connection(secure_cluster.cluster.bootstrap_of(SASL), properties), topic, python=True)


def test_a_login_within_tls(secure_cluster: SecureCluster, topic: str) -> None:
    properties = login(USER, secure_cluster.passwords[USER]) | trusted(secure_cluster.authority.certificate)
    properties["security.protocol"] = "SASL_SSL"
    preflight.check(Connection(secure_cluster.cluster.bootstrap_of(SASL_TLS), properties), topic, python=True)


def test_a_certificate(secure_cluster: SecureCluster, topic: str) -> None:
    shown = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(secure_cluster.proxy.both)}
    properties = {"security.protocol": "SSL", **trusted(secure_cluster.authority.certificate), **shown}
    preflight.check(Connection(secure_cluster.cluster.bootstrap_of(MTLS), properties), topic, python=True)


def test_nobody_listens(topic: str) -> None:
    port = free_port()
    assert f"127.0.0.1:{port}: " in (said := refusal(f"127.0.0.1:{port}", topic))
    assert "check --bootstrap" in said


def test_an_unknown_host(topic: str) -> None:
    assert "no-such-host.invalid is no known host" in refusal("no-such-host.invalid:9092", topic)


def test_nobody_answers(silent: str, topic: str) -> None:
    assert refusal(silent, topic).startswith(f"no answer within 5 s: {silent} answers nothing to PLAINTEXT")


def test_a_topic_that_is_not_there_is_not_made(cluster: KafkaCluster) -> None:
    name = fresh_name("nowhere")
    for _ in range(2):
        assert f"topic {name} is not there" in refusal(cluster.bootstrap, name)


def test_a_wrong_password(secure_cluster: SecureCluster, topic: str) -> None:
    said = refusal(secure_cluster.cluster.bootstrap_of(SASL), topic, login(USER, "a wrong one"))
    assert "refuses the login" in said
    assert "a wrong one" not in said


def test_no_login_where_one_is_needed(secure_cluster: SecureCluster, topic: str) -> None:
    assert "security.protocol" in refusal(secure_cluster.cluster.bootstrap_of(SASL), topic)


def test_no_tls_where_it_is_needed(secure_cluster: SecureCluster, topic: str) -> None:
    assert "security.protocol" in refusal(secure_cluster.cluster.bootstrap_of(MTLS), topic)


def test_tls_where_there_is_none(cluster: KafkaCluster, topic: str) -> None:
    said = refusal(cluster.bootstrap, topic, {"security.protocol": "SSL"})
    assert "security.protocol" in said


def test_an_authority_that_is_not_trusted(secure_cluster: SecureCluster, topic: str) -> None:
    properties = {"security.protocol": "SSL", **trusted(secure_cluster.stranger_authority.certificate)}
    said = refusal(secure_cluster.cluster.bootstrap_of(MTLS), topic, properties)
    assert "see ssl.truststore.location" in said


def test_a_listener_of_another_kind_is_named(secure_cluster: SecureCluster, topic: str) -> None:
    """Whatever it is and whatever it is taken for: their names stand in the line, and that of the setting."""
    brokers, known = secure_cluster.cluster, trusted(secure_cluster.authority.certificate)
    kinds = {PLAIN: "PLAINTEXT", SASL: "SASL_PLAINTEXT", SASL_TLS: "SASL_SSL", MTLS: "SSL"}
    for spoken in kinds.values():
        with_login = login(USER, secure_cluster.passwords[USER]) if spoken.startswith("SASL") else {}
        properties = with_login | known | {"security.protocol": spoken}
        for name, found in kinds.items():
            if found != spoken:
                at = brokers.bootstrap_of(name)
                said = refusal(at, topic, properties)
                assert said.startswith(f"{at} is a {found} listener ("), said
                assert f"and security.protocol is {spoken} (" in said
