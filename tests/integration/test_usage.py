"""Usage records against real brokers: every byte of the wire stands in them, whatever happens to the topic."""

import json
from pathlib import Path

import pytest
from kafka import KafkaProducer
from kafka.errors import KafkaError

from tests.harness.kafka import KafkaCluster
from tests.harness.load import produce_request
from tests.harness.polling import wait_until
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import Connection
from tests.integration.conftest import fresh_name
from tests.integration.recorded import documents, totals

pytestmark = pytest.mark.integration

NODE_ID = 5
PRELUDE_BYTES = 14 + len("forger") + 12
"""Of a Produce v7: header, no transactional id, acks, timeout, how many topics."""
REQUESTS = 200
SHORT_WINDOW = {"window": {"samples": 3, "size": "1s"}}
QUOTAS = "quotas:\n  - {entity: {client-id: slow}, producer_byte_rate: 100000}\n"


def exchange(sluice: SluiceProcess, topic: str, client_id: str, requests: int = REQUESTS) -> tuple[int, int]:
    """Bytes sent and bytes received by a client that counts its own."""
    sent = received = 0
    request = produce_request(topic, client_id, 2000)
    with Connection(sluice.broker_addresses[NODE_ID], timeout_s=30.0) as connection:
        for _ in range(requests):
            sent += len(request)
            received += len(connection.exchange(request))
    return sent, received


def shipped(sluice: SluiceProcess) -> float:
    return sluice.metrics().value("sluice_usage_rows_total", outcome="shipped")


@pytest.fixture(scope="module")
def data_topic(cluster: KafkaCluster) -> str:
    name = fresh_name("measured")
    cluster.create_topic(name, leader=NODE_ID)
    return name


def test_every_byte_of_the_wire_stands_in_the_records(cluster: KafkaCluster, data_topic: str) -> None:
    usage_topic = fresh_name("usage")
    usage = {"topic": {"name": usage_topic, "partitions": 3}, "interval": "200ms", "instance": "edge-1"}
    settings = {"usage": usage, "quotas": SHORT_WINDOW}
    with SluiceProcess(cluster.bootstrap, cluster.node_ids, quotas=QUOTAS, settings=settings) as sluice:
        wire = {client_id: exchange(sluice, data_topic, client_id) for client_id in ("free", "slow")}
        wait_until(lambda: shipped(sluice) > 0, "records shipped")
        assert sluice.stop() == 0  # ships the last record
    found = documents(cluster.bootstrap, usage_topic)
    for client_id, (sent, received) in wire.items():
        sums = totals(found, client_id)
        assert (sums["bytes_in"], sums["bytes_out"]) == (sent, received)
        assert (sums["produce_bytes"], sums["produce_requests"]) == (sent - 4 * REQUESTS, REQUESTS)
        assert sums["connections_opened"] == 1
    assert totals(found, "free")["produce_throttled"] == 0
    slow = totals(found, "slow")
    assert slow["produce_throttle_ms"] >= slow["produce_muted_ms"] > 0
    assert [document["seq"] for document in found] == list(range(len(found)))
    assert {document["instance"] for document in found} == {"edge-1"}


def test_usage_records_without_topic_are_written_to_files(
    cluster: KafkaCluster, data_topic: str, tmp_path: Path
) -> None:
    usage = {"files": {"directory": str(tmp_path), "rotate_after": "500ms"}, "interval": "100ms"}
    with SluiceProcess(cluster.bootstrap, cluster.node_ids, settings={"usage": usage}) as sluice:
        sent, received = exchange(sluice, data_topic, "filed")
        wait_until(lambda: any(tmp_path.glob("*.jsonl")), "a complete file")
        assert sluice.stop() == 0
    assert not list(tmp_path.glob("*.part"))
    lines = [line for path in sorted(tmp_path.iterdir()) for line in path.read_text(encoding="utf-8").splitlines()]
    sums = totals([json.loads(line) for line in lines], "filed")
    assert (sums["bytes_in"], sums["bytes_out"]) == (sent, received)


def test_no_client_produces_to_the_usage_topic(cluster: KafkaCluster, data_topic: str) -> None:
    usage_topic = fresh_name("usage")
    cluster.create_topic(usage_topic, leader=NODE_ID)
    settings = {"usage": {"topic": {"name": usage_topic}, "interval": "200ms"}}
    with SluiceProcess(cluster.bootstrap, cluster.node_ids, settings=settings) as sluice:
        for topics in ((usage_topic,), (data_topic, usage_topic)):
            with (
                Connection(sluice.broker_addresses[NODE_ID], timeout_s=30.0) as connection,
                pytest.raises(ConnectionError),
            ):
                connection.exchange(produce_to(*topics))
        with KafkaProducer(
            bootstrap_servers=str(sluice.bootstrap), retries=0, max_block_ms=20_000, request_timeout_ms=10_000
        ) as producer:
            assert producer.send(data_topic, b"mine").get(30).offset >= 0
            with pytest.raises(KafkaError):
                producer.send(usage_topic, b'{"v": 1}').get(30)
        refused = sluice.metrics().value("sluice_frames_rejected_total", side="client", cause="protected_topic")
        assert refused >= 3
        wait_until(lambda: shipped(sluice) > 0, "records shipped")
        assert sluice.stop() == 0
    assert totals(documents(cluster.bootstrap, usage_topic), "forger")["connections_opened"] == 2


def produce_to(*topics: str) -> bytes:
    """One record each."""
    data = b"".join(produce_request(topic, "forger", 500)[PRELUDE_BYTES:] for topic in topics)
    whole = produce_request("", "forger", 500)[4:PRELUDE_BYTES]
    body = whole[:-4] + len(topics).to_bytes(4, "big") + data
    return len(body).to_bytes(4, "big") + body
