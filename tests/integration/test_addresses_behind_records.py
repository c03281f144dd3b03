"""Fetch from version 16 on, and share groups, with default settings: their answers name brokers behind the records."""

import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pytest

from protocol.compile import SLICE_BYTES
from protocol.locator import locate
from protocol.overlay import FETCH
from protocol.table import SPECS, key_version
from tests.harness.clients.java import java_command, run_tool
from tests.harness.clients.kinds import CONFLUENT, JAVA_4, ClientKind
from tests.harness.clients.tasks import Consume, Produce
from tests.harness.guarded import Guarded, guarded_sluice
from tests.harness.kafka import KafkaCluster
from tests.harness.load import Shape, produce_request, run_loads
from tests.harness.polling import wait_until
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import Connection
from tests.integration import operations
from tests.integration.conftest import fresh_name
from tests.integration.test_transparency import topic_id
from tests.protocol.encode import encode_request

pytestmark = pytest.mark.integration

RECORDS: Final = 300
BUSY, MOVED = 0, 1
"""Partitions: what is read much of, and what is led by another broker now."""
FIRST_LEADER, NEXT_LEADER = 5, 42
RATE_BYTES_PER_S: Final = 2_000_000
MOVING_S: Final = 3.0


@pytest.fixture(scope="module")
def guarded(cluster: KafkaCluster) -> Iterator[Guarded]:
    with guarded_sluice(cluster, settings={"cluster": {"refresh": "1s"}}) as running:
        yield running


@pytest.fixture(scope="module")
def moved(cluster: KafkaCluster) -> str:
    """A topic with much to read in one partition, whose other one has moved."""
    topic = fresh_name("moved")
    cluster.create_topic(topic, leader=FIRST_LEADER, replicas=3, partitions=2)
    request = produce_request(topic, "fill", 2 * SLICE_BYTES, BUSY)
    (load,) = run_loads([Shape(cluster.direct(FIRST_LEADER), request)], 0.5)
    assert not load.errors
    cluster.move_leader(topic, MOVED, NEXT_LEADER)
    return topic


@pytest.mark.parametrize("version", [16, 17, 18])
@pytest.mark.parametrize(
    ("advertised", "told"), [("127.0.0.1", True), ("p.example", True), ("p", True), ("kafka.example.org", False)]
)
def test_a_long_answer_names_the_new_leader_where_there_is_room(
    cluster: KafkaCluster, moved: str, version: int, advertised: str, told: bool
) -> None:
    """Everything else is the broker's own, in its own size."""
    spec = SPECS[key_version(FETCH, version)]
    of_partition: dict[str, Any] = {"partition_max_bytes": 100_000, "log_start_offset": -1, "last_fetched_epoch": -1}
    partitions = [{"partition": number, "current_leader_epoch": 0, **of_partition} for number in (BUSY, MOVED)]
    topics = [{"topic_id": topic_id(cluster, moved).bytes, "partitions": partitions}]
    sizes = {"max_wait_ms": 100, "min_bytes": 1, "max_bytes": 1_000_000, "session_epoch": -1}
    request = encode_request(spec, {"replica_id": -1, "topics": topics, **sizes})
    with (
        SluiceProcess(cluster.bootstrap, cluster.node_ids, advertise=advertised) as sluice,
        Connection(cluster.direct(FIRST_LEADER)) as broker,
        Connection(sluice.broker_addresses[FIRST_LEADER]) as proxy,
    ):
        wanted, got = broker.exchange(request), proxy.exchange(request)
        port = sluice.broker_addresses[NEXT_LEADER].port
    (endpoint,) = locate(spec, wanted).endpoints
    begin = endpoint.id_offset - 8
    assert len(wanted) > SLICE_BYTES
    assert (len(got), got[:begin]) == (len(wanted), wanted[:begin])
    named = [(each.node_id, each.host, each.port) for each in locate(spec, got).endpoints]
    assert named == ([(NEXT_LEADER, advertised.encode(), port)] if told else [])


@pytest.mark.parametrize("kind", [JAVA_4, CONFLUENT], ids=lambda kind: kind.name)
def test_a_consumer_under_load_follows_the_leader_that_moves(guarded: Guarded, kind: ClientKind) -> None:
    topic = _two_partitions(guarded)
    reading = Consume(bootstrap=guarded.sluice.bootstrap, client_id=kind.name, topic=topic, partitions=2)
    with kind.run(reading) as consumer:
        records = _produce_while_the_leader_moves(guarded, topic)
        consumer.wait_for(lambda client: client.of_kind("progress")[-1]["records"] >= records, "everything consumed")
        consumer.ask_to_stop()
        consumed = consumer.result()
    assert (consumed.records, consumed.corrupt, consumed.errors) == (records, 0, ())
    assert guarded.watch.escapes == []


def test_a_share_consumer_under_load_follows_the_leader_that_moves(guarded: Guarded) -> None:
    topic, group, bootstrap = _two_partitions(guarded), fresh_name("share-group"), guarded.sluice.bootstrap
    seconds = 8 * MOVING_S
    command = [*java_command("4.4.0", "ShareConsumer"), bootstrap, "shared", topic, group, str(seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        records = _produce_while_the_leader_moves(guarded, topic)
        described = run_tool(
            "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
            *("--bootstrap-server", bootstrap, "--describe", "--group", group),
        )
        said, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    assert float(said.splitlines()[-1].split()[1]) >= records * 1000
    assert topic in described
    assert guarded.sluice.metrics().value("sluice_requests_total", api="ShareFetch") > 0
    assert guarded.watch.escapes == []


def test_consumer_with_newest_fetch_version_stays_on_the_proxy(guarded: Guarded) -> None:
    operations.acks_leader(guarded, JAVA_4)
    assert guarded.watch.escapes == []


@pytest.mark.slow
def test_tools_of_share_groups_work_through_the_proxy(guarded: Guarded) -> None:
    topic, group, bootstrap = fresh_name("shared"), fresh_name("share-group"), guarded.sluice.bootstrap
    guarded.cluster.create_topic(topic)
    properties = f"bootstrap.servers={bootstrap}"
    load = ["--topic", topic, "--num-records", str(RECORDS), "--record-size", "100", "--throughput", "-1"]
    run_tool("org.apache.kafka.tools.ProducerPerformance", *load, "--producer-props", properties)
    where = ["--bootstrap-server", bootstrap]
    earliest = ["--alter", "--add-config", "share.auto.offset.reset=earliest"]
    run_tool("kafka.admin.ConfigCommand", *where, "--entity-type", "groups", "--entity-name", group, *earliest)
    consumed = run_tool(
        "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
        *where,
        *("--topic", topic, "--group", group, "--max-messages", str(RECORDS), "--timeout-ms", "30000"),
    )
    assert [len(line) for line in consumed.splitlines()] == [100] * RECORDS
    groups = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
    assert group in run_tool(groups, *where, "--list")
    assert topic in run_tool(groups, *where, "--describe", "--group", group)
    of_topic = ["--group", group, "--topic", topic]
    wait_until(
        lambda: "Empty" in run_tool(groups, *where, "--describe", "--group", group, "--state"), "no member", 60.0
    )
    run_tool(groups, *where, "--reset-offsets", *of_topic, "--to-earliest", "--execute")
    run_tool(groups, *where, "--delete-offsets", *of_topic)
    run_tool(groups, *where, "--delete", "--group", group)
    assert guarded.watch.escapes == []


def _two_partitions(guarded: Guarded) -> str:
    topic = fresh_name("two")
    guarded.cluster.create_topic(topic, leader=FIRST_LEADER, replicas=3, partitions=2)
    return topic


def _produce_while_the_leader_moves(guarded: Guarded, topic: str) -> int:
    """Produce to one partition without a pause and to the other one a little; return how many records there are."""
    busy = Produce(
        bootstrap=guarded.sluice.bootstrap,
        client_id="load",
        topic=topic,
        partition=BUSY,
        duration_s=60.0,
        rate_bytes_per_s=RATE_BYTES_PER_S,
        acks=-1,  # else a broker may lose what it has acknowledged, when the leader moves; a retry may double it
        idempotent=True,
    )
    quiet = replace(busy, partition=MOVED, rate_bytes_per_s=20_000, first_index=10**6)
    with JAVA_4.run(busy) as load, JAVA_4.run(quiet) as other:
        for producer in (load, other):
            producer.wait_for(lambda client: bool(client.of_kind("progress")), "records")
        for leader in (NEXT_LEADER, FIRST_LEADER, NEXT_LEADER):
            guarded.cluster.move_leader(topic, MOVED, leader)
            time.sleep(MOVING_S)
        for producer in (load, other):
            producer.ask_to_stop()
        produced = [producer.result() for producer in (load, other)]
    assert [each.errors for each in produced] == [(), ()]
    return sum(each.records for each in produced)
