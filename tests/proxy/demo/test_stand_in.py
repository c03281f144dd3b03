"""The demo's stand-in for a broker, by producers of two libraries and by requests in each version that it offers."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka import KafkaProducer

from protocol.locator import response_body_offset
from protocol.messages import read_message, write_message
from protocol.overlay import API_VERSIONS, METADATA
from protocol.table import SPECS, key_version
from proxy.demo.stand_in import _OFFERED, answer, stand_in
from tests.harness.load import produce_request
from tests.harness.wire import Address, Connection, frame


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with stand_in() as at:
        yield at


def ask(api_key: int, version: int, values: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a request, as values."""
    spec = SPECS[key_version(api_key, version)]
    body = write_message(spec.request_layout, values)
    response = answer(frame(api_key, version, 7, "test", body, flexible=spec.request_header_version == 2), 9092)
    assert response is not None
    assert int.from_bytes(response[4:8], "big") == 7
    return read_message(
        str(spec), spec.response_layout, response, response_body_offset(spec, response, 0), len(response)
    )


def test_a_producer_of_kafka_python_is_served(port: int) -> None:
    producer: Any = KafkaProducer(bootstrap_servers=f"127.0.0.1:{port}")
    futures = [producer.send("orders", b"value") for _ in range(10)]
    assert {(each.get(30).topic, each.get(30).partition) for each in futures} == {("orders", 0)}
    producer.close()


def test_an_idempotent_producer_of_librdkafka_is_served(port: int) -> None:
    delivered: list[Any] = []
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "enable.idempotence": True})
    producer.produce("orders", b"value", on_delivery=lambda error, _: delivered.append(error))
    assert producer.flush(30) == 0
    assert delivered == [None]


@pytest.mark.parametrize("version", range(_OFFERED[METADATA][1] + 1))
def test_metadata_names_this_broker_as_leader_of_each_topic(version: int) -> None:
    topics = [{"topic_id": bytes(16), "name": name} for name in ("a", "b")]
    flags = (
        "allow_auto_topic_creation",
        "include_cluster_authorized_operations",
        "include_topic_authorized_operations",
    )
    said = ask(METADATA, version, {"topics": topics, **dict.fromkeys(flags, False)})
    assert [(each["node_id"], each["host"], each["port"]) for each in said["brokers"]] == [(1, "127.0.0.1", 9092)]
    assert [(topic["name"], topic["partitions"][0]["leader_id"]) for topic in said["topics"]] == [("a", 1), ("b", 1)]


def test_api_versions_answer_lists_exactly_the_offered_apis() -> None:
    offered = {
        each["api_key"]: (each["min_version"], each["max_version"]) for each in ask(API_VERSIONS, 0, {})["api_keys"]
    }
    assert offered == _OFFERED


def test_a_newer_version_of_api_versions_is_refused_with_those_that_it_has() -> None:
    response = answer(frame(API_VERSIONS, 99, 7, "test", b"", flexible=True), 9092)
    assert response is not None
    assert response[8:14] == b"\x00\x23" + len(_OFFERED).to_bytes(4, "big")


def test_a_produce_with_acks_0_has_no_answer() -> None:
    assert answer(produce_request("orders", "test", 200, acks=0), 9092) == b""


@pytest.mark.parametrize("request_", [frame(1, 11, 7, "test", b""), frame(3, 13, 7, "test", b""), b"\0\0\0\1\0"])
def test_request_that_is_not_offered_closes_the_connection(port: int, request_: bytes) -> None:
    with Connection(Address("127.0.0.1", port)) as connection:
        connection.send(request_)
        assert connection.is_closed_by_peer()
