"""Instances that elect the owners of brokers among themselves, in a real group: they join, leave, die, sleep."""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from protocol.groups import (
    Coordinator,
    GroupError,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    read_coordinator,
    read_error,
    read_joined,
    sync_group,
)
from protocol.requests import Request
from tests.harness.clients.kinds import AIOKAFKA, CONFLUENT, KAFKA_PYTHON
from tests.harness.clients.tasks import Consume, Produce
from tests.harness.gate import Gate
from tests.harness.kafka import CLUSTER_ID, KafkaCluster
from tests.harness.polling import wait_until
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import API_VERSIONS, Address, Connection, frame
from tests.integration.conftest import fresh_name

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

NODE_IDS = (1, 5, 42)
NAMES = ("edge-1", "edge-2", "edge-3")
SESSION_S = 6.0
SECRET = "a secret of all instances"


@pytest.fixture(scope="module")
def group_cluster() -> Iterator[KafkaCluster]:
    """Three nodes that keep groups three times, and do not wait for more members."""
    kept = {"offsets.topic.replication.factor": "3", "offsets.topic.num.partitions": "3"}
    with KafkaCluster(node_ids=NODE_IDS, properties={**kept, "group.initial.rebalance.delay.ms": "0"}) as running:
        yield running


class Instances:
    """Instances in one group, by name."""

    def __init__(self, cluster: KafkaCluster, folder: Path, stack: ExitStack) -> None:
        self.group = fresh_name("owners")
        self.running: dict[str, SluiceProcess] = {}
        self.sections: dict[str, Any] = {}
        """More of their configuration."""
        self._cluster = cluster
        self._stack = stack
        self.secret = folder / "secret"
        self.secret.write_text(SECRET)

    def start(self, name: str, *, wait: bool = True, **more: Any) -> SluiceProcess:
        owners = {"instance": name, "group": self.group, "secret_file": str(self.secret), "heartbeat": "500ms", **more}
        instance = SluiceProcess(self._cluster.bootstrap, NODE_IDS, settings={"owners": owners, **self.sections})
        self._stack.callback(instance.close)
        instance.launch()
        if wait:
            instance.wait_ready()
        self.running[name] = instance
        return instance

    def agree(self, *names: str) -> bool:
        """Whether exactly these own all brokers, and each says so."""
        maps = [said(self.running[name]) for name in names]
        found = [{int(node_id): owner for node_id, owner in (one.get("owners") or {}).items()} for one in maps]
        return (
            found[0].keys() == set(NODE_IDS)
            and all(each == found[0] for each in found)
            and all(each.get("state") == "member" for each in maps)
            and set(found[0].values()) == set(names)
        )

    def until_agreed(self, *names: str) -> None:
        wait_until(lambda: self.agree(*names), f"{names} own all brokers", 40.0)

    def owners(self) -> dict[int, str]:
        found = said(next(iter(self.running.values())))["owners"]
        return {int(node_id): owner for node_id, owner in found.items()}


def said(instance: SluiceProcess) -> dict[str, Any]:
    status, text = instance.get("/api/v1/owners")
    found: dict[str, Any] = json.loads(text) if status == 200 else {}
    return found


def owned(instance: SluiceProcess) -> dict[str, str]:
    """The owner of each broker."""
    return dict(said(instance)["owners"])


def owners_by_all(instance: SluiceProcess) -> dict[str, dict[int, str]]:
    """Return the owners of brokers as each instance has them, asked at one."""
    answer = json.loads(instance.get("/api/v1/brokers?all=1")[1])
    assert {each["error"] for each in answer.get("instances", [])} == {None}, answer
    found: dict[str, dict[int, str]] = {each["instance"]: {} for each in answer["instances"]}
    for each in answer["items"]:
        found[each["instance"]][each["node_id"]] = each["owner"]
    return found


@pytest.fixture
def instances(group_cluster: KafkaCluster, tmp_path: Path) -> Iterator[Instances]:
    with ExitStack() as stack:
        yield Instances(group_cluster, tmp_path, stack)


def changed(before: dict[int, str], after: dict[int, str]) -> set[int]:
    return {node_id for node_id in NODE_IDS if before[node_id] != after[node_id]}


def test_instances_join_leave_and_move_as_little_as_they_can(instances: Instances) -> None:
    for name in NAMES[:2]:
        instances.start(name)
    instances.until_agreed(*NAMES[:2])
    before = instances.owners()
    instances.start("edge-3")
    instances.until_agreed(*NAMES)
    after = instances.owners()
    assert len(changed(before, after)) == 1
    assert owners_by_all(instances.running["edge-1"]) == dict.fromkeys(NAMES, after)
    status, page = instances.running["edge-1"].get("/?all=1")
    assert (status, "Nothing from instance" in page) == (200, False)
    assert all(f"<bdi>{name}</bdi>" in page for name in NAMES)
    metrics = instances.running["edge-3"].metrics()
    assert metrics.value("sluice_owned_brokers") == 1
    assert metrics.value("sluice_owners_moves_total", direction="gained") == 1
    assert instances.running["edge-3"].stop() == 0
    del instances.running["edge-3"]
    instances.until_agreed(*NAMES[:2])
    assert changed(after, instances.owners()) == {node_id for node_id, owner in after.items() if owner == "edge-3"}


@pytest.mark.parametrize("probe", [True, False])
def test_killed_instance_is_replaced_as_owner(instances: Instances, probe: bool) -> None:
    for name in NAMES:
        instances.start(name, probe=str(probe).lower())
    instances.until_agreed(*NAMES)
    before = instances.owners()
    time.sleep(1.5)  # the probe has to have been answered once
    instances.running.pop("edge-2").signal(signal.SIGKILL)
    instances.until_agreed("edge-1", "edge-3")
    assert changed(before, instances.owners()) == {node_id for node_id, owner in before.items() if owner == "edge-2"}
    removed = [
        line for each in instances.running.values() for line in each.logs() if "instance removed" in line["event"]
    ]
    assert len(removed) == (1 if probe else 0)


def test_instance_restarted_at_once_becomes_owner_again(instances: Instances) -> None:
    for name in NAMES:
        instances.start(name)
    instances.until_agreed(*NAMES)
    instances.running.pop("edge-2").signal(signal.SIGKILL)
    instances.start("edge-2", wait=False)
    instances.until_agreed(*NAMES)


def test_a_sleeper_is_replaced_and_owns_nothing_when_it_wakes(instances: Instances) -> None:
    for name in NAMES:
        instances.start(name)
    instances.until_agreed(*NAMES)
    sleeper = instances.running.pop("edge-2")
    os.kill(sleeper.pid, signal.SIGSTOP)
    instances.until_agreed("edge-1", "edge-3")
    time.sleep(1.0)
    os.kill(sleeper.pid, signal.SIGCONT)
    instances.running["edge-2"] = sleeper
    instances.until_agreed(*NAMES)
    events = [line["event"] for line in sleeper.logs()]
    slept = next(position for position, event in enumerate(events) if "has slept" in event)
    replaced = next(position for position, event in enumerate(events) if event.startswith("replaced: others own"))
    assert slept < replaced


def test_owners_stay_when_group_coordinator_dies(group_cluster: KafkaCluster, instances: Instances) -> None:
    for name in NAMES[:2]:
        instances.start(name)
    instances.until_agreed(*NAMES[:2])
    before, owned_before = said(instances.running["edge-1"]), owned(instances.running["edge-1"])
    with Connection(group_cluster.direct(NODE_IDS[0])) as connection:
        found = read_coordinator(connection.exchange(find_coordinator(instances.group).frame("test", 1)))
    at = Address(found.host, found.port)
    coordinator = next(node_id for node_id in NODE_IDS if group_cluster.direct(node_id) == at)
    group_cluster.stop_broker(coordinator, crash=True)
    try:
        wait_until(lambda: _answered_since(instances), "another coordinator answers", 60.0)
        for each in instances.running.values():
            assert (said(each)["epoch"], owned(each)) == (before["epoch"], owned_before)
    finally:
        group_cluster.start_broker(coordinator)
    assert all(not any("replaced" in line["event"] for line in each.logs()) for each in instances.running.values())


def _answered_since(instances: Instances) -> bool:
    frozen = all(any(line.get("state") == "frozen" for line in each.logs()) for each in instances.running.values())
    return frozen and all(said(each)["state"] == "member" for each in instances.running.values())


def test_second_instance_with_the_same_name_fences_the_first(instances: Instances) -> None:
    first = instances.start("edge-1")
    second = instances.start("edge-1", wait=False)
    wait_until(second.is_ready, "the later one is the instance", 40.0)
    wait_until(lambda: not first.is_ready(), "the earlier one is not", 40.0)
    assert "another instance has the name edge-1" in first.get("/readyz")[1]
    assert said(first)["state"] == "fenced"


def test_a_stranger_without_the_secret_is_given_nothing(instances: Instances, tmp_path: Path) -> None:
    instances.start("edge-1")
    other = tmp_path / "other"
    other.write_text("another secret of somebody")
    stranger = instances.start("edge-2", wait=False, secret_file=str(other))
    wait_until(lambda: "is owners.secret_file the same" in stranger.get("/readyz")[1], "it knows why", 40.0)
    del instances.running["edge-2"]
    wait_until(lambda: instances.agree("edge-1"), "the owner stays", 40.0)


class Stranger:
    """Somebody with READ on the group, and with nothing else that its members have: it speaks the group protocol."""

    def __init__(self, cluster: KafkaCluster, group: str, protocol: str) -> None:
        asked = find_coordinator(group).frame("stranger", 1)
        found: list[Coordinator] = []

        def is_there() -> bool:  # the first question of all has the brokers make a topic
            with Connection(cluster.direct(NODE_IDS[0])) as connection:
                found.append(read_coordinator(connection.exchange(asked)))
            return found[-1].error_code == 0

        wait_until(is_there, "the group has a coordinator", 40.0)
        self._connection = Connection(Address(found[-1].host, found[-1].port), timeout_s=60.0)
        self._group, self._protocol, self._member_id = group, protocol, ""
        self.generation = -1
        self.leads = False

    def _ask(self, request: Request) -> bytes:
        return self._connection.exchange(request.frame("stranger", 1))

    def join(self) -> None:
        """Join, and assign junk to all members if it leads."""
        for _ in range(2):  # it is given a member id first
            joined = read_joined(
                self._ask(
                    join_group(
                        self._group,
                        self._member_id,
                        session_ms=30_000,
                        protocol_type="sluice",
                        protocols={self._protocol: b"junk"},
                    )
                )
            )
            self._member_id = joined.member_id
        assert joined.error_code == 0
        self.generation, self.leads = joined.generation, joined.leader == joined.member_id
        junk = dict.fromkeys(joined.members, b"junk") if self.leads else {}
        self._ask(sync_group(self._group, self.generation, self._member_id, junk))

    def rejoin_if_asked(self) -> None:
        if (
            read_error(self._ask(heartbeat(self._group, self.generation, self._member_id)))
            == GroupError.REBALANCE_IN_PROGRESS
        ):
            self.join()

    def leave(self) -> None:
        self._ask(leave_group(self._group, self._member_id))
        self._connection.__exit__(None, None, None)


def test_a_stranger_that_leads_is_not_believed(group_cluster: KafkaCluster, instances: Instances) -> None:
    stranger = Stranger(group_cluster, instances.group, "owners-2")
    stranger.join()
    assert stranger.leads
    instance = instances.start("edge-1", wait=False)

    def knows() -> bool:
        stranger.rejoin_if_asked()
        return "map not taken" in instance.get("/readyz")[1]

    wait_until(knows, "its map is not taken", 60.0)
    assert (said(instance)["state"], said(instance)["owners"]) == ("alone", {})
    stranger.leave()
    instances.until_agreed("edge-1")


def test_instance_of_another_version_reports_it_in_readyz(group_cluster: KafkaCluster, instances: Instances) -> None:
    """The coordinator refuses who has no protocol that all members have."""
    other = Stranger(group_cluster, instances.group, "owners-3")
    other.join()
    instance = instances.start("edge-1", wait=False)
    wait_until(lambda: "instances of another version" in instance.get("/readyz")[1], "it says so", 40.0)
    assert said(instance)["state"] == "alone"
    other.leave()
    instances.until_agreed("edge-1")


@pytest.mark.matrix
@pytest.mark.parametrize("when_cut_off", ["serve", "stop"])
def test_owner_cut_off_from_coordinator_is_replaced_and_frozen(
    group_cluster: KafkaCluster, instances: Instances, when_cut_off: str
) -> None:
    """Its clients' way to the brokers is another one, which stays."""
    with ExitStack() as stack:
        endpoints = [node.endpoints["PLAIN"] for node in group_cluster.nodes]
        gates = [stack.enter_context(Gate(each.guarded, each.guarded_listener)) for each in endpoints]
        for gate in gates:
            gate.open()
        instances.start("edge-1")
        owners = {"instance": "edge-2", "group": instances.group, "secret_file": str(instances.secret)}
        cut_off = SluiceProcess(
            group_cluster.guarded_bootstrap,
            NODE_IDS,
            settings={"owners": {**owners, "heartbeat": "500ms", "when_cut_off": when_cut_off}},
            plain={"cluster": {"bootstrap": group_cluster.bootstrap.split(",")}},
        )
        instances.running["edge-2"] = stack.enter_context(cut_off)
        instances.until_agreed("edge-1", "edge-2")
        mine = next(node_id for node_id, owner in instances.owners().items() if owner == "edge-2")
        for gate in gates:
            gate.silence()
        began_s = time.monotonic()
        wait_until(lambda: set(owned(instances.running["edge-1"]).values()), "it is replaced", 40.0, equals={"edge-1"})
        print(f"replaced after {time.monotonic() - began_s:.1f} s")
        wait_until(lambda: said(cut_off)["state"], "it is frozen", 40.0, equals="frozen")
        if when_cut_off == "serve":
            assert is_served(cut_off.broker_addresses[mine])
        else:
            wait_until(lambda: not cut_off.is_ready(), "it has stopped", 40.0)
            counted = cut_off.metrics().value("sluice_connections_total", outcome="not_owner")
            for _ in range(10):  # one in four may ask
                is_served(cut_off.broker_addresses[mine])
            assert cut_off.metrics().value("sluice_connections_total", outcome="not_owner") > counted
        for gate in gates:
            gate.open()
        began_s = time.monotonic()
        instances.until_agreed("edge-1", "edge-2")
        print(f"an owner again after {time.monotonic() - began_s:.1f} s")


def is_served(at: Address) -> bool:
    with Connection(at) as connection:
        try:
            return bool(connection.exchange(frame(API_VERSIONS, 0, 1, "asks", b"")))
        except ConnectionError:
            return False


@pytest.mark.matrix
def test_owners_stay_while_all_brokers_are_down(group_cluster: KafkaCluster, instances: Instances) -> None:
    for name in NAMES[:2]:
        instances.start(name)
    instances.until_agreed(*NAMES[:2])
    before, owned_before = said(instances.running["edge-1"]), owned(instances.running["edge-1"])
    for node_id in NODE_IDS:
        group_cluster.stop_broker(node_id, crash=True)
    try:
        wait_until(lambda: all(said(each)["state"] == "frozen" for each in instances.running.values()), "frozen", 40.0)
        time.sleep(2 * SESSION_S)
        assert all(owned(each) == owned_before for each in instances.running.values())
    finally:
        began_s = time.monotonic()
        for node_id in NODE_IDS:
            group_cluster.brokers[node_id].start(CLUSTER_ID)
        for node_id in NODE_IDS:
            group_cluster.brokers[node_id].wait_ready()
    back_s = time.monotonic()
    wait_until(lambda: all(said(each)["state"] == "member" for each in instances.running.values()), "members", 60.0)
    print(f"brokers back after {back_s - began_s:.1f} s, members {time.monotonic() - back_s:.1f} s later")
    for each in instances.running.values():
        assert (said(each)["epoch"], owned(each)) == (before["epoch"], owned_before)
        assert not any("replaced" in line["event"] for line in each.logs())


def test_no_record_is_lost_or_comes_twice_while_owners_change(
    group_cluster: KafkaCluster, instances: Instances
) -> None:
    for name in NAMES[:2]:
        instances.start(name)
    instances.until_agreed(*NAMES[:2])
    bootstrap = ",".join(each.bootstrap for each in instances.running.values())
    with ExitStack() as stack:
        producers = {}
        for kind, leader in ((AIOKAFKA, 1), (CONFLUENT, 5), (KAFKA_PYTHON, 42)):
            topic = fresh_name("moved")
            group_cluster.create_topic(topic, leader=leader)
            task = Produce(
                bootstrap=bootstrap,
                client_id=kind.name,
                topic=topic,
                duration_s=120.0,
                record_bytes=500,
                rate_bytes_per_s=50_000,
                acks=-1,
                idempotent=True,
            )
            producers[kind, topic] = stack.enter_context(kind.run(task))
        time.sleep(3.0)
        instances.start("edge-3")
        instances.until_agreed(*NAMES)
        time.sleep(3.0)
        assert instances.running.pop("edge-1").stop() == 0
        instances.until_agreed("edge-2", "edge-3")
        time.sleep(3.0)
        instances.start("edge-1")
        instances.until_agreed(*NAMES)
        time.sleep(3.0)
        instances.running.pop("edge-2").signal(signal.SIGKILL)
        instances.until_agreed("edge-1", "edge-3")
        time.sleep(6.0)
        for producer in producers.values():
            producer.ask_to_stop()
        produced = {key: producer.result(timeout_s=90) for key, producer in producers.items()}
        for (kind, topic), sent in produced.items():
            assert (sent.errors, sent.records > 500) == ((), True)
            reading = Consume(
                bootstrap=group_cluster.bootstrap,
                client_id="reader",
                topic=topic,
                records=sent.records,
                duration_s=30.0,
            )
            with CONFLUENT.run(reading) as consumer:
                found = consumer.result()
            assert (kind.name, found.records, found.corrupt) == (kind.name, sent.records, 0)
