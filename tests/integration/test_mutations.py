"""controller_mutation_rate with real brokers and clients: the brokers' own quota is the oracle."""

import asyncio
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioTopic
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # it does export it
from kafka.admin import KafkaAdminClient
from kafka.errors import NodeNotReadyError

from protocol.mutation_answers import read_outcomes
from protocol.overlay import CREATE_PARTITIONS, CREATE_TOPICS
from protocol.table import SPECS, key_version
from tests.harness.clients.java import ToolError, java_command, run_tool
from tests.harness.kafka import KafkaCluster
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import Address, Connection
from tests.integration.conftest import SHORT_WINDOW_SAMPLES, fresh_name
from tests.protocol.encode import encode_request

QUOTA = "controller_mutation_rate"
LIMIT = 2.0
"""Less than a slow machine makes."""
JAVA_LIMIT = 5.0
TOLERANCE = 0.05
STORM_S = 15.0
CREATE = key_version(CREATE_TOPICS, 7)
OLD_CREATE = key_version(CREATE_TOPICS, 5)
CLIENTS = ("own", "own-old", "proxied", "proxied-old", "kafka-python", "confluent", "aiokafka", "java")


@dataclass
class Storm:
    """What became of topics that were asked for one after the other, as fast as the brokers would take them."""

    accepted: int = 0
    refused: int = 0
    in_vain: int = 0
    """Of those, refused right after another refusal, whose throttle time had been waited for."""


@pytest.fixture(scope="module")
def sluice(cluster: KafkaCluster) -> Iterator[SluiceProcess]:
    limits = dict.fromkeys(CLIENTS, LIMIT) | {"java": JAVA_LIMIT}
    entries = "".join(f"  - {{entity: {{client-id: {name}}}, {QUOTA}: {limit}}}\n" for name, limit in limits.items())
    window = {"samples": SHORT_WINDOW_SAMPLES, "size": "1s"}
    settings = {"quotas": {"controller_window": window}}
    with SluiceProcess(cluster.bootstrap, cluster.node_ids, quotas=f"quotas:\n{entries}", settings=settings) as running:
        yield running


def storm(address: Address, client_id: str, version: int, seconds: float) -> Storm:
    """Create topics of one partition until the time is over, on one connection."""
    found, before = Storm(), 0
    spec = SPECS[version]
    end_s = time.monotonic() + seconds
    with Connection(address, timeout_s=60) as asking:
        while time.monotonic() < end_s:
            topic = {"name": fresh_name("storm"), "num_partitions": 1, "replication_factor": 1}
            frame = encode_request(spec, {"topics": [topic], "timeout_ms": 30_000}, client_id=client_id)
            (outcome,) = read_outcomes(spec, asking.exchange(frame))
            assert outcome.error_code in (0, 89)
            found.accepted += outcome.error_code == 0
            found.refused += outcome.error_code == 89
            found.in_vain += outcome.error_code == before == 89
            before = outcome.error_code
    return found


def most(seconds: float) -> float:
    """What the quota allows in that time, and one topic more."""
    return LIMIT * (SHORT_WINDOW_SAMPLES + seconds) + 1


@pytest.mark.integration
@pytest.mark.timeout(200)
def test_a_storm_of_topics_is_held_as_by_the_broker_itself(cluster: KafkaCluster, sluice: SluiceProcess) -> None:
    node_id = cluster.node_ids[0]
    cluster.set_client_quotas(QUOTA, {"own": LIMIT, "own-old": LIMIT})
    direct, through = cluster.direct(node_id), sluice.broker_addresses[node_id]
    storms: tuple[tuple[Address, str, int], ...] = (
        (direct, "own", CREATE),
        (through, "proxied", CREATE),
        (direct, "own-old", OLD_CREATE),
        (through, "proxied-old", OLD_CREATE),
    )
    try:
        with ThreadPoolExecutor(4) as threads:
            own, proxied, own_old, proxied_old = threads.map(
                lambda each: storm(each[0], each[1], each[2], STORM_S), storms
            )
    finally:
        cluster.set_client_quotas(QUOTA, {"own": None, "own-old": None})
    assert proxied.accepted == pytest.approx(own.accepted, rel=TOLERANCE, abs=2)
    # How many are refused in between goes by how long topics take to be made: on a busy machine, none is.
    print(f"refused: {proxied.refused} (broker {own.refused}), in vain {proxied.in_vain} (broker {own.in_vain})")
    assert proxied.in_vain == 0, "the mute is as long as the throttle time"
    assert proxied_old.accepted == pytest.approx(own_old.accepted, rel=TOLERANCE, abs=2)
    assert (own_old.refused, proxied_old.refused) == (0, 0)
    assert proxied.accepted <= most(STORM_S)
    metrics = sluice.metrics()
    assert metrics.value("sluice_quota_mutations_total", client_id="proxied") == proxied.accepted
    assert metrics.value("sluice_quota_throttled_responses_total", client_id="proxied") == proxied.refused


def grown(address: Address, client_id: str, first: str) -> list[int]:
    """Add a partition at a time to two topics, as fast as it goes; return the error code of each."""
    create, grow = SPECS[CREATE], SPECS[key_version(CREATE_PARTITIONS, 3)]
    with Connection(address, timeout_s=60) as asking:
        topics = [{"name": f"{first}{each}", "num_partitions": 1, "replication_factor": 1} for each in "ab"]
        asking.exchange(encode_request(create, {"topics": topics, "timeout_ms": 30_000}, client_id=client_id))
        codes = []
        for count in range(2, 52):
            both = [{"name": f"{first}{each}", "count": count} for each in "ab"]
            frame = encode_request(grow, {"topics": both, "timeout_ms": 30_000}, client_id=client_id)
            codes += [outcome.error_code for outcome in read_outcomes(grow, asking.exchange(frame))]
    return codes


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(200)
def test_partitions_that_are_added_in_quick_succession_are_charged_once(cluster: KafkaCluster) -> None:
    """102 of them under a quota that allows them: metadata that lags behind would make them twice as many."""
    quotas = f"quotas:\n  - {{entity: {{client-id: grower}}, {QUOTA}: 100}}\n"
    settings = {"quotas": {"controller_window": {"samples": 2, "size": "1s"}}}
    with SluiceProcess(cluster.bootstrap, cluster.node_ids, quotas=quotas, settings=settings) as running:
        codes = grown(running.broker_addresses[cluster.node_ids[0]], "grower", fresh_name("grown"))
        charged = running.metrics().value("sluice_quota_mutations_total", client_id="grower")
    assert codes == [0] * 100
    assert charged == 102


@pytest.mark.integration
@pytest.mark.timeout(200)
def test_a_request_refused_in_part_is_answered_in_the_order_that_the_broker_has(cluster: KafkaCluster) -> None:
    node_id, names = cluster.node_ids[0], [fresh_name(f"{letter}part") for letter in "zaymbx"]
    topics = [{"name": name, "num_partitions": 30, "replication_factor": 1} for name in names]

    def order(address: Address, suffix: str) -> list[tuple[str, int]]:
        asked = [{**topic, "name": f"{topic['name']}{suffix}"} for topic in topics]
        frame = encode_request(SPECS[CREATE], {"topics": asked, "timeout_ms": 30_000}, client_id="parted")
        with Connection(address, timeout_s=60) as asking:
            outcomes = read_outcomes(SPECS[CREATE], asking.exchange(frame))
        return [(each.topic[0].decode().removesuffix(suffix), each.error_code) for each in outcomes]

    direct = order(cluster.direct(node_id), "-direct")

    quotas = f"quotas:\n  - {{entity: {{client-id: parted}}, {QUOTA}: {LIMIT}}}\n"
    settings = {"quotas": {"controller_window": {"samples": SHORT_WINDOW_SAMPLES, "size": "1s"}}}
    with SluiceProcess(cluster.bootstrap, cluster.node_ids, quotas=quotas, settings=settings) as running:
        through = order(running.broker_addresses[node_id], "-through")
    assert [name for name, _ in through] == [name for name, _ in direct] == names
    assert {code for _, code in through} == {0, 89}


@pytest.mark.matrix
@pytest.mark.timeout(200)
def test_proxy_refuses_as_many_mutations_as_the_broker(cluster: KafkaCluster, sluice: SluiceProcess) -> None:
    """One storm after the other: topics are made at the same speed in both."""
    node_id = cluster.node_ids[0]
    cluster.set_client_quotas(QUOTA, {"own": LIMIT})
    try:
        storm(cluster.direct(node_id), "warm-up", CREATE, 5.0)
        time.sleep(SHORT_WINDOW_SAMPLES)  # full, whatever ran before
        own = storm(cluster.direct(node_id), "own", CREATE, STORM_S)
        proxied = storm(sluice.broker_addresses[node_id], "proxied", CREATE, STORM_S)
    finally:
        cluster.set_client_quotas(QUOTA, {"own": None})
    print(f"accepted {proxied.accepted} (broker {own.accepted}), refused {proxied.refused} (broker {own.refused})")
    assert proxied.accepted == pytest.approx(own.accepted, rel=TOLERANCE, abs=2)
    assert min(own.refused, proxied.refused) > 0
    assert proxied.refused == pytest.approx(own.refused, rel=TOLERANCE, abs=2)


@pytest.mark.matrix
@pytest.mark.timeout(200)
@pytest.mark.parametrize("connections", [5, 20])
def test_mutation_rate_holds_over_many_connections(sluice: SluiceProcess, connections: int) -> None:
    address = next(iter(sluice.broker_addresses.values()))
    before_s = time.monotonic()
    time.sleep(SHORT_WINDOW_SAMPLES)  # full again, whatever ran before
    with ThreadPoolExecutor(connections) as threads:
        found = list(threads.map(lambda _: storm(address, "proxied", CREATE, STORM_S), range(connections)))
    accepted = sum(each.accepted for each in found)
    assert LIMIT * STORM_S * (1 - TOLERANCE) <= accepted <= most(time.monotonic() - before_s)


def with_kafka_python(bootstrap: str, seconds: float) -> Storm:
    found = Storm()
    admin: Any = KafkaAdminClient(bootstrap_servers=bootstrap, client_id="kafka-python")
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        topic = {fresh_name("python"): {"num_partitions": 2, "replication_factor": 1}}
        try:
            (outcome,) = admin.create_topics(topic, raise_errors=False)["topics"]
        except NodeNotReadyError:  # it keeps to its throttle time by itself
            time.sleep(0.02)
            continue
        assert outcome["error_code"] in (0, 89)
        found.accepted += outcome["error_code"] == 0
        found.refused += outcome["error_code"] == 89
    admin.close()
    return found


def with_confluent(bootstrap: str, seconds: float) -> Storm:
    found = Storm()
    admin = AdminClient({"bootstrap.servers": bootstrap, "client.id": "confluent"})
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        name = fresh_name("confluent")
        try:
            admin.create_topics([NewTopic(name, 2, 1)])[name].result(30)
            found.accepted += 1
        except KafkaException as error:
            if error.args[0].code() != 89:
                raise
            found.refused += 1
    return found


def with_aiokafka(bootstrap: str, seconds: float) -> Storm:
    async def create() -> Storm:
        found = Storm()
        admin: Any = AIOKafkaAdminClient(bootstrap_servers=bootstrap, client_id="aiokafka")
        await admin.start()
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            answer = await admin.create_topics([AioTopic(fresh_name("aio"), 2, 1)])
            ((_, code, *_),) = answer.topic_errors
            assert code in (0, 89)
            found.accepted += code == 0
            found.refused += code == 89
        await admin.close()
        return found

    return asyncio.run(create())


CLIENT_IDS = {with_kafka_python: "kafka-python", with_confluent: "confluent", with_aiokafka: "aiokafka"}


@pytest.mark.integration
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "client",
    [with_kafka_python, with_confluent, pytest.param(with_aiokafka, marks=pytest.mark.matrix)],
    ids=["kafka-python", "confluent", "aiokafka"],
)
def test_clients_of_each_library_stay_within_mutation_rate(sluice: SluiceProcess, client: Any) -> None:
    """kafka-python is refused; librdkafka and aiokafka speak a version that is not, and wait."""
    begin_s = time.monotonic()
    found: Storm = client(sluice.bootstrap, 8.0)
    seconds = time.monotonic() - begin_s
    assert (found.refused > 0) is (client is with_kafka_python)
    assert LIMIT * SHORT_WINDOW_SAMPLES < 2 * found.accepted <= most(seconds) + 1
    counted = sluice.metrics().value("sluice_quota_mutations_total", client_id=CLIENT_IDS[client])
    assert counted == 2 * found.accepted


def run_java(version: str, bootstrap: str, client_id: str, topics: int, partitions: int) -> str:
    arguments = [bootstrap, client_id, fresh_name("java"), str(topics), str(partitions)]
    command = [*java_command(version, "Topics"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.integration
def test_kafka_python_describes_the_quorum(cluster: KafkaCluster, sluice: SluiceProcess) -> None:
    """It knows version 2 alone; the controllers' addresses are nobody's business here."""
    found = []
    for bootstrap in (cluster.bootstrap, sluice.bootstrap):
        admin: Any = KafkaAdminClient(bootstrap_servers=bootstrap, client_id="describes")
        found.append(admin.describe_metadata_quorum())
        admin.close()
    own, proxied = found
    assert own["nodes"], "a broker says them"
    assert [node["node_id"] for node in proxied["nodes"]] == [node["node_id"] for node in own["nodes"]]
    assert [node["listeners"] for node in proxied["nodes"]] == [[] for _ in own["nodes"]]
    (partition,), (same,) = (each["topics"][0]["partitions"] for each in found)
    assert partition["leader_id"] == same["leader_id"]


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(200)
def test_java_repeats_what_is_refused_until_all_is_done(sluice: SluiceProcess) -> None:
    """Ten topics of three partitions, one more for each, and all deleted: 30, 10 and 40, whatever was refused when."""
    assert run_java("4.4.0", sluice.bootstrap, "java", topics=10, partitions=3).split() == [
        "created",
        "grown",
        "deleted",
    ]
    metrics = sluice.metrics()
    assert metrics.value("sluice_quota_mutations_total", client_id="java") == 80
    assert metrics.value("sluice_quota_throttled_responses_total", client_id="java") >= 3
    assert metrics.value("sluice_frames_rejected_total") == 0


@pytest.mark.matrix
@pytest.mark.timeout(300)
def test_java_mutations_at_old_broker_are_all_charged(old_cluster: KafkaCluster) -> None:
    quotas = f"quotas:\n  - {{entity: {{client-id: java}}, {QUOTA}: {JAVA_LIMIT}}}\n"
    with SluiceProcess(old_cluster.bootstrap, old_cluster.node_ids, quotas=quotas) as running:
        run_java("3.9.2", running.bootstrap, "java", topics=40, partitions=2)
        assert running.metrics().value("sluice_quota_mutations_total", client_id="java") == 80 + 40 + 120


@pytest.mark.integration
@pytest.mark.timeout(120)
def test_shadow_mode_refuses_no_mutation_and_counts_all(cluster: KafkaCluster) -> None:
    quotas = f"quotas:\n  - {{entity: {{client-id: storm}}, {QUOTA}: 0.1}}\n"
    settings = {"quotas": {"mode": "shadow", "controller_window": {"samples": 1, "size": "1s"}}}
    with SluiceProcess(cluster.bootstrap, cluster.node_ids, quotas=quotas, settings=settings) as running:
        found = storm(running.broker_addresses[cluster.node_ids[0]], "storm", CREATE, 3.0)
        metrics = running.metrics()
    assert found.refused == 0
    assert found.accepted > 1, "more than the quota allows"
    assert metrics.value("sluice_quota_mutations_total", client_id="storm") == found.accepted
    assert metrics.value("sluice_quota_throttled_responses_total", client_id="storm") > 0


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(200)
def test_kafka_topics_says_why_it_was_refused(cluster: KafkaCluster) -> None:
    """The tool does not repeat what is refused (TopicCommand: retryOnQuotaViolation(false)).

    Forty partitions at 0.1 a second are a debt of more than six minutes: a slow machine does not pay it off between
    two starts of the tool.
    """
    quotas = f"quotas:\n  - {{entity: {{client-id: {{default: true}}}}, {QUOTA}: 0.1}}\n"

    def kafka_topics(*arguments: str) -> str:
        return run_tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", running.bootstrap, *arguments)

    name = fresh_name("tool")
    with SluiceProcess(cluster.bootstrap, cluster.node_ids, quotas=quotas) as running:
        assert f"Created topic {name}." in kafka_topics("--create", "--topic", name, "--partitions", "40")
        with pytest.raises(ToolError, match="The throttling quota has been exceeded"):
            kafka_topics("--alter", "--topic", name, "--partitions", "60")
        with pytest.raises(ToolError, match="The throttling quota has been exceeded"):
            kafka_topics("--delete", "--topic", name)
        assert name in kafka_topics("--list")
