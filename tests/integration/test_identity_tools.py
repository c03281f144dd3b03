"""The tools of the distribution, with an operator's properties, through a listener with TLS and SASL."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.certificates import STORE_PASSWORD
from tests.harness.clients.java import run_tool
from tests.harness.guarded import Guarded, guarded_sluice
from tests.harness.polling import wait_until
from tests.harness.sasl import SUCCESS, log_in_scram
from tests.harness.secure import SASL_TLS, SecureCluster
from tests.harness.wire import Address, Connection
from tests.integration.conftest import fresh_name
from tests.integration.identity import EVERYBODY, taken_for

pytestmark = [pytest.mark.slow, pytest.mark.integration]

LINES = "one\ntwo\nthree\n"
PASSWORD = "password of erin"


@pytest.fixture(scope="module")
def guarded(secure_cluster: SecureCluster) -> Iterator[Guarded]:
    listeners = {SASL_TLS: secure_cluster.listeners()[SASL_TLS]}
    with guarded_sluice(secure_cluster.cluster, quotas=f"quotas:\n{EVERYBODY}", listeners=listeners) as running:
        yield running


def test_kafka_tools_work_through_sasl_ssl_listener(
    secure_cluster: SecureCluster, guarded: Guarded, tmp_path: Path
) -> None:
    """A user makes a topic, fills it and reads it, and makes a user, who can then log in."""
    topic, client_id = fresh_name("tools"), fresh_name("console")
    where = ["--bootstrap-server", guarded.sluice.listeners[SASL_TLS].bootstrap]
    alice = _properties(secure_cluster, tmp_path / "alice.properties", "alice", secure_cluster.passwords["alice"])
    given = ["--command-config", alice]
    run_tool("org.apache.kafka.tools.TopicCommand", *where, *given, "--create", "--topic", topic)
    named = ["--command-property", f"client.id={client_id}"]
    run_tool("org.apache.kafka.tools.ConsoleProducer", *where, "--topic", topic, *given, *named, text=LINES)
    wanted = ["--topic", topic, "--from-beginning", "--max-messages", "3", "--timeout-ms", "30000"]
    assert run_tool("org.apache.kafka.tools.consumer.ConsoleConsumer", *where, *wanted, *given) == LINES
    assert taken_for(guarded.sluice, client_id) == {"alice"}
    user = ["--alter", "--entity-type", "users", "--entity-name", "erin"]
    credential = ["--add-config", f"SCRAM-SHA-512=[password={PASSWORD}]"]
    run_tool("kafka.admin.ConfigCommand", *where, *given, *user, *credential)
    wait_until(lambda: _may_log_in(secure_cluster, guarded, "erin"), "erin known to the broker")
    assert guarded.watch.escapes == []


def _properties(secure: SecureCluster, file: Path, user: str, password: str) -> str:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    properties = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{module} required username="{user}" password="{password}";',
        "ssl.truststore.location": str(secure.authority.store),
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.password": STORE_PASSWORD,
    }
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()), encoding="utf-8")
    return str(file)


def _may_log_in(secure: SecureCluster, guarded: Guarded, user: str) -> bool:
    address: Address = guarded.sluice.listeners[SASL_TLS].address
    with Connection(address, tls=secure.context()) as connection:
        return log_in_scram(connection, user, PASSWORD).error_code == SUCCESS
