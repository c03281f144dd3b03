"""A transaction that nobody will ever end is found through the proxy, and ended there (KIP-664)."""

import time
from typing import Any, Final

import pytest
from kafka.record import MemoryRecordsBuilder

from protocol.overlay import PRODUCE
from protocol.table import SPECS, key_version
from tests.harness.clients.java import run_tool
from tests.harness.kafka import KafkaCluster
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import Connection
from tests.integration.conftest import fresh_name
from tests.protocol.encode import encode_request

NODE_ID: Final = 1
FIND_COORDINATOR, INIT_PRODUCER_ID, ADD_PARTITIONS, END = (
    SPECS[key_version(*each)] for each in ((10, 2), (22, 1), (24, 1), (26, 1))
)
PRODUCE_7: Final = SPECS[key_version(PRODUCE, 7)]
TOOL: Final = "org.apache.kafka.tools.TransactionsCommand"


@pytest.mark.integration
def test_a_hanging_transaction_is_found_and_aborted_through_the_proxy() -> None:
    topic = fresh_name("hanging")
    unverified = {"transaction.partition.verification.enable": "false"}  # since KIP-890 none comes about otherwise
    with KafkaCluster(node_ids=(NODE_ID,), properties=unverified) as cluster:
        cluster.create_topic(topic, leader=NODE_ID)
        with SluiceProcess(cluster.bootstrap, cluster.node_ids) as sluice:
            _leave_one_hanging(sluice, topic)
            where = ["--bootstrap-server", sluice.bootstrap]
            find = [TOOL, *where, "find-hanging", "--broker-id", str(NODE_ID), "--max-transaction-timeout", "1"]
            (found,) = [line.split() for line in run_tool(*find).splitlines() if line.startswith(topic)]
            start_offset = found[5]
            run_tool(TOOL, *where, "abort", "--topic", topic, "--partition", "0", "--start-offset", start_offset)
            assert topic not in run_tool(*find)
            assert sluice.metrics().value("sluice_requests_total", api="WriteTxnMarkers") == 1


def _leave_one_hanging(sluice: SluiceProcess, topic: str) -> None:
    """Produce within a transaction, end it, and produce once more: to nobody's knowledge but that partition's."""
    named = {"transactional_id": "hanging"}
    with Connection(sluice.broker_addresses[NODE_ID]) as broker:
        deadline = time.monotonic() + 60
        while True:
            coordinator = broker.exchange(encode_request(FIND_COORDINATOR, {"key": "hanging", "key_type": 1}))
            begun = broker.exchange(encode_request(INIT_PRODUCER_ID, {**named, "transaction_timeout_ms": 60_000}))
            if coordinator[12:14] == begun[12:14] == b"\0\0":
                break
            assert time.monotonic() < deadline, (coordinator, begun)
            time.sleep(0.5)
        who = {
            "producer_id": int.from_bytes(begun[14:22], "big"),
            "producer_epoch": int.from_bytes(begun[22:24], "big"),
        }
        added = {**named, **who, "topics": [{"name": topic, "partitions": [0]}]}
        added = {f"v3_and_below_{name}": value for name, value in added.items()}
        assert broker.exchange(encode_request(ADD_PARTITIONS, added)).endswith(b"\0\0\0\0\0\0")
        for sequence in (0, 1):
            partitions = [{"index": 0, "records": _batch(sequence, **who)}]
            data = {
                **named,
                "acks": -1,
                "timeout_ms": 30_000,
                "topic_data": [{"name": topic, "partition_data": partitions}],
            }
            answer = broker.exchange(encode_request(PRODUCE_7, data))
            error_at = 8 + 4 + 2 + len(topic) + 4 + 4
            assert answer[error_at : error_at + 2] == b"\0\0", answer
            if not sequence:
                ended = broker.exchange(encode_request(END, {**named, **who, "committed": True}))
                assert ended[12:14] == b"\0\0"
                time.sleep(2)  # the marker is written behind the answer


def _batch(sequence: int, producer_id: int, producer_epoch: int) -> bytes:
    """A record of an hour ago: so old is then the transaction."""
    builder: Any = MemoryRecordsBuilder(
        magic=2,
        compression_type=0,
        batch_size=1 << 20,
        transactional=True,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
    )
    builder.append(timestamp=int((time.time() - 3600) * 1000), key=None, value=b"value")
    builder.close()
    return bytes(builder.buffer())
