"""The usage topic goes away, or is not to be had: the data path goes on, and what is lost is counted to the row.

Usage goes to a cluster of its own here (`cluster`), data to another one (the listener's own `cluster`), so that the
one may be down while the other serves.
"""

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    ResourcePattern,
    ResourceType,
)

from tests.harness.broker import BrokerListener
from tests.harness.kafka import KafkaCluster
from tests.harness.load import produce_request
from tests.harness.polling import wait_until
from tests.harness.ports import LOOPBACK, free_ports
from tests.harness.secure import SASL_TLS, SecureCluster
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import Address, Connection
from tests.integration.conftest import fresh_name
from tests.integration.recorded import documents, totals
from tests.integration.test_usage import NODE_ID

pytestmark = pytest.mark.matrix  # a minute without a topic, more than once

AWAY_S: Final = 60.0
BACK_S: Final = 60.0
"""The sink tries again every 15 s."""
USER, PASSWORD = "usage-writer", "of the writer"
_PLAIN_LOGIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.fixture(scope="module")
def usage_cluster() -> Iterator[KafkaCluster]:
    """One node with ACLs: without a login everything is allowed, USER may do what he is given."""
    listener = BrokerListener(
        "SASL",
        "SASL_PLAINTEXT",
        {"sasl.enabled.mechanisms": "PLAIN", "plain.sasl.jaas.config": f'{_PLAIN_LOGIN} user_{USER}="{PASSWORD}";'},
    )
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with KafkaCluster(listeners=[listener], properties=properties) as running:
        yield running


@pytest.fixture(scope="module")
def data_topic(cluster: KafkaCluster) -> str:
    name = fresh_name("data")
    cluster.create_topic(name, leader=NODE_ID)
    return name


class Apart:
    """A proxy whose clients go to `data` and whose usage goes to `usage` (the keys of the section `cluster`)."""

    def __init__(self, data: KafkaCluster, usage_cluster: dict[str, Any], usage: dict[str, Any]) -> None:
        bind, broker = free_ports(2)
        self.broker = Address(LOOPBACK, broker)
        self.topic = fresh_name("usage")
        listener = {
            "name": "DATA",
            "bind": f"{LOOPBACK}:{bind}",
            "advertise": LOOPBACK,
            "brokers": {str(NODE_ID): str(broker)},
            "cluster": {"bootstrap": data.bootstrap.split(",")},
        }
        topic = {"name": self.topic, "partitions": 3, "replication_factor": 1}
        settings = {
            "listeners": [listener],
            "cluster": usage_cluster,
            "usage": {"interval": "100ms", "instance": "apart", "topic": topic, **usage},
        }
        self.process = SluiceProcess("", (), settings=settings)

    def __enter__(self) -> "Apart":
        self.process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.close()

    def counted(self, what: str, outcome: str) -> int:
        return int(self.process.metrics().value(f"sluice_usage_{what}_total", outcome=outcome))

    def dropped(self) -> tuple[int, int]:
        """Documents and rows."""
        return self.counted("documents", "dropped"), self.counted("rows", "dropped")

    def error(self) -> str:
        samples = self.process.metrics().samples("sluice_usage_error_info")
        return samples[0].labels["error"] if samples else ""

    def is_shipped(self) -> bool:
        """Nothing waits, and nothing is wrong."""
        return self.error() == "" and self.process.metrics().value("sluice_usage_buffer_bytes") < 5000


def plain(cluster: KafkaCluster) -> dict[str, Any]:
    return {"bootstrap": cluster.bootstrap.split(",")}


class Traffic:
    """One client that produces at a pace, counts its bytes and notes how long each answer took."""

    def __init__(self, address: Address, topic: str, client_id: str) -> None:
        self.client_id = client_id
        self.sent = self.received = 0
        self.took_s: list[tuple[float, float]] = []
        self.error: OSError | None = None
        self._request = produce_request(topic, client_id, 2000)
        self._address = address
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Traffic":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def median_s(self, from_s: float, to_s: float) -> float:
        return statistics.median(took_s for at_s, took_s in self.took_s if from_s <= at_s <= to_s)

    def _run(self) -> None:
        try:
            with Connection(self._address, timeout_s=30.0) as connection:
                while not self._ended.wait(0.02):
                    begin_s = time.monotonic()
                    self.sent += len(self._request)
                    self.received += len(connection.exchange(self._request))
                    self.took_s.append((begin_s, time.monotonic() - begin_s))
        except OSError as error:
            self.error = error


def missing(found: list[dict[str, Any]]) -> int:
    """How many numbers are left out, each document counted once."""
    numbers: set[int] = {document["seq"] for document in found}
    return max(numbers) + 1 - len(numbers)


def once(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without documents that came twice, which only the number tells."""
    return list({document["seq"]: document for document in found}.values())


def test_usage_topic_outage_drops_only_counted_records(
    cluster: KafkaCluster, usage_cluster: KafkaCluster, data_topic: str
) -> None:
    """With room for it nothing is lost; without, exactly what is counted; and clients notice neither."""
    roomy = Apart(cluster, plain(usage_cluster), {})
    tight = Apart(cluster, plain(usage_cluster), {"buffer": "20KiB"})
    with roomy, tight:
        with (
            Traffic(roomy.broker, data_topic, "roomy") as on_roomy,
            Traffic(tight.broker, data_topic, "tight") as other,
        ):
            wait_until(lambda: roomy.counted("rows", "shipped") > 0, "records shipped", timeout_s=30.0)
            wait_until(lambda: tight.counted("rows", "shipped") > 0, "records shipped", timeout_s=30.0)
            begin_s = time.monotonic()
            time.sleep(5)
            away_s = time.monotonic()
            usage_cluster.stop_broker(0, crash=True)
            time.sleep(AWAY_S)
            assert roomy.error()
            assert tight.counted("documents", "dropped") > 0
            back_s = time.monotonic()
            usage_cluster.start_broker(0)
            wait_until(roomy.is_shipped, "all shipped", timeout_s=BACK_S)
            wait_until(tight.is_shipped, "all shipped", timeout_s=BACK_S)
        for traffic in (on_roomy, other):
            assert traffic.error is None
            usual_s = traffic.median_s(begin_s, away_s)
            assert traffic.median_s(away_s, back_s) < 3 * usual_s + 0.01
        dropped = {each.topic: each.dropped() for each in (roomy, tight)}
        assert roomy.process.stop() == tight.process.stop() == 0
        lines = tight.process.logs()  # each of them JSON: no library writes past the log
    assert sum(line["event"] == "cannot ship usage records: buffering them" for line in lines) == 1

    found = once(documents(usage_cluster.bootstrap, roomy.topic))
    assert (missing(found), dropped[roomy.topic]) == (0, (0, 0))
    sums = totals(found, "roomy")
    assert (sums["bytes_in"], sums["bytes_out"]) == (on_roomy.sent, on_roomy.received)

    found = once(documents(usage_cluster.bootstrap, tight.topic))
    last = max(found, key=lambda document: document["seq"])
    lost = (last["dropped_documents"], last["dropped_rows"])
    assert lost == dropped[tight.topic]
    assert missing(found) == lost[0] > 0
    kept = totals(found, "tight")
    assert kept["bytes_in"] < other.sent  # and what is missing of it went with one row each
    assert lost[1] == lost[0]


def test_a_topic_that_may_not_be_made_waits_until_the_operator_has_made_it(
    cluster: KafkaCluster, usage_cluster: KafkaCluster, data_topic: str, tmp_path: Path
) -> None:
    secret = tmp_path / "password"
    secret.write_text(PASSWORD, encoding="utf-8")
    secret.chmod(0o600)
    login = {"mechanism": "PLAIN", "username": USER, "password_file": str(secret)}
    route = {"bootstrap": usage_cluster.bootstrap_of("SASL").split(","), "sasl": login}
    with Apart(cluster, route, {}) as proxy:
        with Traffic(proxy.broker, data_topic, "waits") as traffic:
            wait_until(lambda: "allow that user WRITE" in proxy.error(), "an error that says what to do", 30.0)
            usage_cluster.create_topic(proxy.topic)
            _allow(usage_cluster, proxy.topic)
            wait_until(proxy.is_shipped, "all shipped", timeout_s=BACK_S)
        assert proxy.process.stop() == 0
    found = once(documents(usage_cluster.bootstrap, proxy.topic))
    assert missing(found) == 0
    assert totals(found, "waits")["bytes_in"] == traffic.sent


def test_a_login_that_is_refused_is_named(
    cluster: KafkaCluster, usage_cluster: KafkaCluster, data_topic: str, tmp_path: Path
) -> None:
    secret = tmp_path / "password"
    secret.write_text("of somebody else", encoding="utf-8")
    secret.chmod(0o600)
    login = {"mechanism": "PLAIN", "username": USER, "password_file": str(secret)}
    route = {"bootstrap": usage_cluster.bootstrap_of("SASL").split(","), "sasl": login}
    with Apart(cluster, route, {}) as proxy, Traffic(proxy.broker, data_topic, "refused") as traffic:
        wait_until(lambda: f"refused the login of user {USER} by PLAIN" in proxy.error(), "the reason", 30.0)
        secret.write_text(PASSWORD, encoding="utf-8")  # read anew at each attempt
        wait_until(lambda: "allow that user WRITE" in proxy.error(), "the next reason", timeout_s=BACK_S)
        assert traffic.error is None
        assert "of somebody else" not in proxy.process.output()


def test_a_topic_that_is_deleted_is_made_again(
    cluster: KafkaCluster, usage_cluster: KafkaCluster, data_topic: str
) -> None:
    with Apart(cluster, plain(usage_cluster), {}) as proxy, Traffic(proxy.broker, data_topic, "deleted"):
        wait_until(lambda: proxy.counted("documents", "shipped") > 3, "records shipped", timeout_s=30.0)
        _admin(usage_cluster, lambda admin: admin.delete_topics([proxy.topic]))
        before = proxy.counted("documents", "shipped")
        wait_until(lambda: proxy.counted("documents", "shipped") > before + 3, "shipped again", timeout_s=BACK_S)
        assert proxy.counted("documents", "dropped") == 0
        assert proxy.process.stop() == 0
        found = documents(usage_cluster.bootstrap, proxy.topic)
    assert max(document["seq"] for document in found) > before


def test_usage_record_over_max_message_bytes_is_dropped_and_counted(
    cluster: KafkaCluster, usage_cluster: KafkaCluster, data_topic: str
) -> None:
    names = [f"{number:02}" + "\0" * 32_000 for number in range(30)]
    with Apart(cluster, plain(usage_cluster), {"interval": "1s"}) as proxy:
        wait_until(lambda: _exchange_each(proxy.broker, data_topic, names) == len(names), "an answer each")
        wait_until(lambda: proxy.counted("rows", "shipped") >= len(names), "all shipped", timeout_s=30.0)
        found = documents(usage_cluster.bootstrap, proxy.topic)
        assert len({document["time_ms"] for document in found}) < len(found)  # an interval in several documents
        assert {row for document in found for row in document["rows"]["client_id"]} == set(names)

        _admin(usage_cluster, lambda admin: admin.alter_configs(_max_bytes(proxy.topic, 100)))
        _exchange_each(proxy.broker, data_topic, ["small"])
        wait_until(lambda: proxy.counted("rows", "dropped") > 0, "refused, and counted", timeout_s=30.0)
        lines = proxy.process.logged("usage record refused")
        assert "raise its max.message.bytes" in lines[0]["error"]
        _admin(usage_cluster, lambda admin: admin.alter_configs(_max_bytes(proxy.topic, 1_048_588)))
        _exchange_each(proxy.broker, data_topic, ["later"])
        wait_until(
            lambda: totals(documents(usage_cluster.bootstrap, proxy.topic), "later")["requests"] > 0,
            "taken again",
            30.0,
        )


def test_usage_records_ship_over_sasl_ssl(
    cluster: KafkaCluster, secure_cluster: SecureCluster, data_topic: str
) -> None:
    route = secure_cluster.route(SASL_TLS, guarded=False)
    with Apart(cluster, route, {}) as proxy:
        with Traffic(proxy.broker, data_topic, "secure") as traffic:
            wait_until(lambda: proxy.counted("rows", "shipped") > 3, "records shipped", timeout_s=30.0)
        assert proxy.process.stop() == 0
    found = once(documents(secure_cluster.cluster.bootstrap, proxy.topic))
    assert totals(found, "secure")["bytes_in"] == traffic.sent


def _exchange_each(address: Address, topic: str, client_ids: list[str]) -> int:
    answers = 0
    for client_id in client_ids:
        with Connection(address, timeout_s=30.0) as connection:
            answers += bool(connection.exchange(produce_request(topic, client_id, 500)))
    return answers


def _admin(cluster: KafkaCluster, do: Callable[[Any], object]) -> None:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    try:
        do(admin)
    finally:
        admin.close()


def _allow(cluster: KafkaCluster, topic: str) -> None:
    pattern = ResourcePattern(ResourceType.TOPIC, topic)
    acl = ACL(f"User:{USER}", "*", ACLOperation.WRITE, ACLPermissionType.ALLOW, pattern)
    _admin(cluster, lambda admin: admin.create_acls([acl]))


def _max_bytes(topic: str, size: int) -> list[ConfigResource]:
    return [ConfigResource(ConfigResourceType.TOPIC, topic, {"max.message.bytes": str(size)})]
