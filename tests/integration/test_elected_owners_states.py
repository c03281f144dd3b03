"""Each state that somebody else can bring the group of the instances into, on real brokers: it is told, and it ends."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from protocol.groups import (
    Coordinator,
    find_coordinator,
    join_group,
    leave_group,
    read_coordinator,
    read_joined,
)
from tests.harness.kafka import KafkaCluster
from tests.harness.polling import wait_until
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import Address, Connection, frame
from tests.integration.conftest import fresh_name

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

STRANGERS = 20
METADATA_BYTES = 900_000


@pytest.fixture(scope="module")
def single() -> Iterator[KafkaCluster]:
    with KafkaCluster(node_ids=(1,), properties={"group.initial.rebalance.delay.ms": "0"}) as running:
        yield running


def at_coordinator(cluster: KafkaCluster, group: str, stack: ExitStack) -> Connection:
    found: list[Coordinator] = []

    def is_there() -> bool:  # the first question of all has the brokers make a topic
        with Connection(cluster.direct(1)) as connection:
            found.append(read_coordinator(connection.exchange(find_coordinator(group).frame("stranger", 1))))
        return found[-1].error_code == 0

    wait_until(is_there, "the group has a coordinator", 60.0)
    return stack.enter_context(Connection(Address(found[-1].host, found[-1].port), timeout_s=60.0))


def text(said: str) -> bytes:
    return bytes((len(said) + 1,)) + said.encode()


def text16(said: str) -> bytes:
    return len(said).to_bytes(2, "big") + said.encode()


def consumer_heartbeat(group: str, member: str, epoch: int) -> bytes:
    """ConsumerGroupHeartbeat v0."""
    topics = b"\2" + text("none") if epoch == 0 else b"\0"
    body = text(group) + text(member) + epoch.to_bytes(4, "big", signed=True)
    owned = b"\1" if epoch == 0 else b"\0"
    body += b"\0\0" + (60_000).to_bytes(4, "big") + topics + b"\0" + owned + b"\0"
    return frame(68, 0, 1, "stranger", body, flexible=True)


def share_heartbeat(group: str, member: str, epoch: int) -> bytes:
    """ShareGroupHeartbeat v1."""
    topics = b"\2" + text("none") if epoch == 0 else b"\0"
    body = text(group) + text(member) + epoch.to_bytes(4, "big", signed=True)
    return frame(76, 1, 1, "stranger", body + b"\0" + topics + b"\0", flexible=True)


@contextmanager
def of_new_type(
    cluster: KafkaCluster, group: str, heartbeat: Callable[[str, str, int], bytes], member: str
) -> Iterator[None]:
    with ExitStack() as stack:
        connection = at_coordinator(cluster, group, stack)
        answer = connection.exchange(heartbeat(group, member, 0))
        assert answer[13:15] == b"\0\0", answer  # behind size, correlation id, tags, throttle time
        if not member:  # it is given one
            at = answer.index(b"\x17", 15)
            member = answer[at + 1 : at + 23].decode()
        yield
        answer = connection.exchange(heartbeat(group, member, -1))
        assert answer[13:15] == b"\0\0", answer


@contextmanager
def classic(cluster: KafkaCluster, group: str) -> Iterator[None]:
    with ExitStack() as stack:
        connection, member, code = at_coordinator(cluster, group, stack), "", -1

        def has_joined() -> bool:  # it loads the group at first
            nonlocal member, code
            joining = join_group(group, member, session_ms=60_000, protocol_type="consumer", protocols={"range": b"a"})
            joined = read_joined(connection.exchange(joining.frame("stranger", 1)))
            member, code = joined.member_id, joined.error_code
            return code == 0

        wait_until(has_joined, "a classic group", 60.0)
        yield
        connection.exchange(leave_group(group, member).frame("stranger", 1))


@contextmanager
def consumers(cluster: KafkaCluster, group: str) -> Iterator[None]:
    with of_new_type(cluster, group, consumer_heartbeat, ""):
        yield


@contextmanager
def share(cluster: KafkaCluster, group: str) -> Iterator[None]:
    with of_new_type(cluster, group, share_heartbeat, str(uuid4())):
        yield


def started(cluster: KafkaCluster, group: str, folder: Path) -> SluiceProcess:
    (folder / "secret").write_text("a secret of all instances")
    owners = {"instance": "edge-1", "group": group, "secret_file": str(folder / "secret"), "heartbeat": "500ms"}
    return SluiceProcess(cluster.bootstrap, (1,), settings={"owners": owners})


STATES = {"classic": classic, "consumer": consumers, "share": share}


@pytest.mark.parametrize("state", STATES)
def test_group_of_another_type_is_told_and_instance_joins_once_it_has_ended(
    single: KafkaCluster, tmp_path: Path, state: str
) -> None:
    group = fresh_name("owners")
    sluice = started(single, group, tmp_path)
    with ExitStack() as stack:
        stack.callback(sluice.close)
        with STATES[state](single, group):
            sluice.launch()
            wait_until(lambda: "is in use by others" in sluice.get("/readyz")[1], "it says so", 60.0)
        if state == "share":  # it stays a share group until it is deleted: kafka-share-groups.sh --delete
            deleting = frame(42, 1, 1, "operator", (1).to_bytes(4, "big") + text16(group))
            answer = at_coordinator(single, group, stack).exchange(deleting)
            assert answer.endswith(bytes(2)), answer
        wait_until(sluice.is_ready, "it is a member", 60.0)
        assert sluice.stop() == 0


def test_strangers_with_megabytes_are_removed_and_instance_leads_on(single: KafkaCluster, tmp_path: Path) -> None:
    """The answer to the leader has 18 MB: more than the proxy reads of any other."""
    group = fresh_name("owners")
    metadata = {"owners-2": bytes(METADATA_BYTES)}
    with ExitStack() as stack:
        sluice = started(single, group, tmp_path)
        stack.callback(sluice.close)
        sluice.launch()
        sluice.wait_ready()
        connections = [at_coordinator(single, group, stack) for _ in range(STRANGERS)]
        members = []
        for connection in connections:
            asked = join_group(group, "", session_ms=60_000, protocol_type="sluice", protocols=metadata)
            members.append(read_joined(connection.exchange(asked.frame("stranger", 1))).member_id)
        for connection, member in zip(connections, members, strict=True):
            asked = join_group(group, member, session_ms=60_000, protocol_type="sluice", protocols=metadata)
            connection.send(asked.frame("stranger", 2))

        def removed() -> set[str]:
            return {line["member"] for line in sluice.logs() if line["event"].startswith("a stranger")}

        def leads() -> bool:
            said = json.loads(sluice.get("/api/v1/owners")[1])
            return bool(said["state"] == "member" and said["owners"]["1"] == "edge-1")

        wait_until(lambda: removed() == set(members), "they are removed", 120.0)
        wait_until(leads, "it leads on", 60.0)
        assert sluice.is_ready()
        assert sluice.stop() == 0
