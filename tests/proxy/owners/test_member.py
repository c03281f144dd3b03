"""Membership, before a coordinator that answers as a test says: each answer has its effect on who owns what."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from config.owners import Owners
from protocol import groups
from protocol.groups import GroupError
from protocol.requests import Request
from proxy.owners import member as module
from proxy.owners.assignment import DRIFT_S
from proxy.owners.coordinator import NoCoordinatorError, NotAllowedError
from proxy.owners.map import OwnersMap
from proxy.owners.member import GroupMember
from proxy.owners.membership import Membership, MemberState
from proxy.owners.messages import Kind, Label, MapMessage, MemberMessage, Signing
from proxy.owners.probe import Probe
from proxy.owners.turns import member_label
from proxy.runtime.clock import monotonic_s
from proxy.runtime.faults import counts
from proxy.runtime.http_get import Answer
from tests.harness.clock import Clock
from tests.harness.polling import until
from tests.proxy.owners.test_assignment import member as said_by

pytestmark = pytest.mark.asyncio

SIGNING = Signing(b"secret", "group")
SETTINGS = Owners(instance="a", group="group", secret_file=Path("secret"))
ME = Membership(SETTINGS, "a", 5, "group", b"secret", {}, None)


class FakeCoordinator:
    """A group of this member, ``others`` and ``strangers``, whose leader is this member unless ``map`` is given."""

    def __init__(self) -> None:
        self.errors: dict[int, list[int]] = {}
        """Errors of the next answers, by api key."""
        self.silent = False
        self.others: dict[str, MemberMessage] = {}
        self.strangers: dict[str, bytes] = {}
        self.map: MapMessage | None = None
        self.signing = SIGNING
        """Signs ``map``."""
        self.generation = 0
        self.asked: list[int] = []
        self.removed: list[bytes] = []
        self.said: MemberMessage | None = None

    async def ask(self, request: Request, within_s: float = 0.0, longest_bytes: int | None = None) -> bytes:
        self.asked.append(request.api_key)
        if self.silent:
            raise NoCoordinatorError("nobody answers")
        errors = self.errors.get(request.api_key, [])
        error = errors.pop(0) if errors else 0
        if request.api_key == groups.JOIN_GROUP:
            return self._join(error, request.body)
        if request.api_key == groups.SYNC_GROUP:
            if self.map is not None:
                label = Label(Kind.MAP, "a", "me-1", self.generation)
                given = self.map.packed.signed(self.signing, label)
            else:
                given = request.body.partition(b"me-1")[2].partition(b"me-1")[2][4:]
                given = given[: int.from_bytes(request.body.partition(b"me-1")[2].partition(b"me-1")[2][:4], "big")]
            body = bytes(4) + error.to_bytes(2, "big") + len(given).to_bytes(4, "big") + given
            return bytes(8) + body
        if request.api_key == groups.LEAVE_GROUP:
            self.removed.append(request.body)
        return bytes(12) + error.to_bytes(2, "big")

    ask_apart = ask

    async def forget(self) -> None: ...

    def not_allowed(self) -> NotAllowedError:
        return NotAllowedError("may not use the group")

    async def close(self) -> None: ...

    def _join(self, error: int, body: bytes) -> bytes:
        def text(said: str) -> bytes:
            return len(said).to_bytes(2, "big") + said.encode()

        begin = body.index(b"owners-2") + 8
        mine = body[begin + 4 : begin + 4 + int.from_bytes(body[begin : begin + 4], "big")]
        member_id = "me-1" if b"me-1" in body else ""
        self.said = MemberMessage.unpack(mine, SIGNING, member_label(member_id))
        if not member_id:
            error = error or GroupError.MEMBER_ID_REQUIRED
        self.generation += 1
        others = {f"{name}-1": each.model_copy(update={"turn": self.generation}) for name, each in self.others.items()}
        packed = {name: each.packed.signed(SIGNING, member_label(name)) for name, each in others.items()}
        members = {"me-1": mine, **packed, **self.strangers} if self.map is None else {}
        listed = b"".join(text(key) + len(each).to_bytes(4, "big") + each for key, each in members.items())
        head = bytes(12) + error.to_bytes(2, "big") + self.generation.to_bytes(4, "big") + text("owners-2")
        leader = "me-1" if self.map is None else "other"
        return head + text(leader) + text("me-1") + len(members).to_bytes(4, "big") + listed


class Seen:
    """What a member has put in force."""

    def __init__(self, brokers: tuple[int, ...] = (1, 2, 3), me: Membership = ME) -> None:
        self.coordinator = FakeCoordinator()
        self.maps: list[tuple[OwnersMap | None, bool]] = []
        self.brokers = list(brokers)
        self.load: dict[int, float] = {}
        self.member = GroupMember(me, self.coordinator, self._known, self._own)  # type: ignore[arg-type]  # a fake

    async def _known(self) -> tuple[list[int], dict[int, float]]:
        return self.brokers, self.load

    def _own(self, in_force: OwnersMap | None, fenced: bool) -> None:
        self.maps.append((in_force, fenced))

    @property
    def owned(self) -> set[int]:
        in_force, fenced = self.maps[-1]
        assert in_force is not None
        return set() if fenced else {node for node in self.brokers if in_force.owner(node) == "a"}


@pytest.fixture
def seen() -> Seen:
    return Seen()


def heartbeat_with(seen: Seen, error: int) -> None:
    seen.coordinator.errors[groups.HEARTBEAT] = [error]


async def test_member_without_known_broker_does_not_join() -> None:
    seen = Seen(())
    await seen.member._step()
    assert (seen.coordinator.asked, seen.member.state) == ([], MemberState.ALONE)
    assert seen.member.why_not_ready == "owners: it has not joined yet"


async def test_member_owns_all_brokers_alone_and_half_with_second(seen: Seen) -> None:
    seen.coordinator.errors[groups.JOIN_GROUP] = [GroupError.MEMBER_ID_REQUIRED]
    await seen.member._step()
    assert (seen.member.state, seen.owned, seen.member.why_not_ready) == (MemberState.MEMBER, {1, 2, 3}, None)
    seen.coordinator.others["b"] = said_by("b")
    heartbeat_with(seen, GroupError.REBALANCE_IN_PROGRESS)
    await seen.member._step()
    assert (len(seen.owned), seen.member.status.lost, seen.member.status.gained) == (2, 1, 3)
    assert seen.coordinator.said is not None
    assert (seen.coordinator.said.owned, seen.coordinator.said.epoch) == ((1, 2, 3), 2)


async def test_cut_off_member_gives_up_brokers_if_configured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = Seen(me=replace(ME, settings=SETTINGS.model_copy(update={"when_cut_off": "stop"})))
    await seen.member._step()
    seen.coordinator.silent = True
    await seen.member._step()
    assert (seen.member.state, seen.owned) == (MemberState.FROZEN, {1, 2, 3})
    now_s = monotonic_s()
    monkeypatch.setattr(module, "monotonic_s", lambda: now_s + 6.1)
    for _ in range(2):
        await seen.member._step()
    assert (seen.member.state, seen.owned, len(seen.maps)) == (MemberState.FROZEN, set(), 2)
    assert "no coordinator: nobody answers" in str(seen.member.why_not_ready)
    seen.coordinator.silent = False
    await seen.member._step()
    assert (seen.member.state, seen.owned, seen.member.why_not_ready) == (MemberState.MEMBER, {1, 2, 3}, None)


async def test_member_before_first_map_is_ready_if_serving_alone() -> None:
    seen = Seen(me=replace(ME, settings=SETTINGS.model_copy(update={"before_first": "serve"})))
    seen.coordinator.silent = True
    await seen.member._step()
    assert (seen.member.state, seen.maps, seen.member.why_not_ready) == (MemberState.ALONE, [], None)


@pytest.mark.parametrize("error", [GroupError.UNKNOWN_MEMBER_ID, GroupError.ILLEGAL_GENERATION])
async def test_replaced_member_is_fenced_until_it_rejoins(seen: Seen, error: int) -> None:
    await seen.member._step()
    heartbeat_with(seen, error)
    with capture_logs() as logs:
        await seen.member._step()
    assert [fenced for _, fenced in seen.maps] == [False, True, False]
    assert "replaced: others own the brokers of this instance" in [line["event"] for line in logs]


async def test_without_a_coordinator_the_last_map_stays(seen: Seen) -> None:
    await seen.member._step()
    seen.coordinator.silent = True
    for _ in range(3):
        await seen.member._step()
    assert (seen.member.state, seen.owned, len(seen.maps)) == (MemberState.FROZEN, {1, 2, 3}, 1)
    assert seen.member.why_not_ready is None
    seen.coordinator.silent = False
    await seen.member._step()
    assert (seen.member.state, len(seen.maps)) == (MemberState.MEMBER, 1)


@pytest.mark.parametrize("error", [GroupError.NOT_COORDINATOR, GroupError.COORDINATOR_LOAD_IN_PROGRESS, 3])
async def test_a_coordinator_that_has_moved_changes_nothing(seen: Seen, error: int) -> None:
    await seen.member._step()
    heartbeat_with(seen, error)
    await seen.member._step()
    assert (seen.member.state, len(seen.maps)) == (MemberState.FROZEN, 1)


async def test_member_without_group_authorization_is_fenced(seen: Seen) -> None:
    await seen.member._step()
    heartbeat_with(seen, GroupError.GROUP_AUTHORIZATION_FAILED)
    seen.coordinator.errors[groups.JOIN_GROUP] = [GroupError.GROUP_AUTHORIZATION_FAILED] * 9
    await seen.member._step()
    assert (seen.member.state, seen.owned) == (MemberState.FENCED, set())
    assert "may not use the group" in str(seen.member.why_not_ready)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (GroupError.INVALID_SESSION_TIMEOUT, "group.min.session.timeout.ms"),
        (GroupError.INCONSISTENT_GROUP_PROTOCOL, "is in use by others"),
        (GroupError.GROUP_ID_NOT_FOUND, "a share or streams group"),
        (GroupError.GROUP_MAX_SIZE_REACHED, "group.max.size"),
    ],
)
async def test_a_refusal_says_what_to_do(seen: Seen, error: int, said: str) -> None:
    seen.coordinator.errors[groups.JOIN_GROUP] = [error]
    await seen.member._step()
    assert (seen.member.state, said in str(seen.member.why_not_ready)) == (MemberState.ALONE, True)


async def test_stepping_down_gives_all_to_others(seen: Seen) -> None:
    seen.coordinator.others["b"] = said_by("b")
    await seen.member._step()
    assert seen.owned
    await seen.member.step_down()
    assert (seen.owned, seen.member.why_not_ready) == (set(), None)
    await seen.member.leave()
    assert seen.coordinator.removed == [b"\0\5group\0\4me-1"]


async def test_a_stranger_is_given_nothing_and_its_map_is_not_taken(seen: Seen) -> None:
    unsigned = said_by("x").packed.signed(Signing(b"other", "group"), member_label("x-1"))
    seen.coordinator.strangers["x-1"] = unsigned
    with capture_logs() as logs:
        await seen.member._step()
    assert seen.owned == {1, 2, 3}
    assert [line["member"] for line in logs if line["event"].startswith("a stranger")] == ["x-1"]
    assert seen.coordinator.removed == [b"\0\5group\0\3x-1"]
    seen.coordinator.map = MapMessage(epoch=9, owners={1: "x"}, members={"x": said_by("x")}, ids={})
    seen.coordinator.signing = Signing(b"other", "group")
    heartbeat_with(seen, GroupError.REBALANCE_IN_PROGRESS)
    await seen.member._step()
    assert (seen.member.state, seen.owned, len(seen.maps)) == (MemberState.FROZEN, {1, 2, 3}, 1)
    assert len(seen.coordinator.removed) == 2


async def test_the_later_of_two_with_one_name_is_the_instance(seen: Seen) -> None:
    seen.coordinator.others["b"] = said_by("a", boot=6)
    await seen.member._step()
    assert (seen.member.state, seen.owned) == (MemberState.FENCED, set())
    assert "another instance has the name a" in str(seen.member.why_not_ready)
    seen.coordinator.others["b"] = said_by("a", boot=4)
    await seen.member._step()
    assert (seen.member.state, seen.owned) == (MemberState.MEMBER, {1, 2, 3})


async def test_a_new_broker_is_placed_after_a_while(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(module, "monotonic_s", clock)
    await seen.member._step()
    seen.brokers.append(4)
    await seen.member._step()
    assert seen.owned == {1, 2, 3, 4}  # by hash: there is nobody else
    assert len(seen.maps) == 1
    clock.now_s += 61
    await seen.member._step()
    assert seen.member.status.owners == dict.fromkeys((1, 2, 3, 4), "a")


async def test_member_rejoins_after_minutes_of_changed_load(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(module, "monotonic_s", clock)
    seen.coordinator.others["b"] = said_by("b", load={})
    await seen.member._step()
    own = sorted(seen.owned)
    seen.load = {**dict.fromkeys(own, 100.0), 99: 7.0}  # the last one is not its own
    for _ in range(2):
        await seen.member._step()
        assert len(seen.maps) == 1
        clock.now_s += DRIFT_S / 2
    await seen.member._step()
    assert seen.coordinator.said is not None
    assert seen.coordinator.said.load == dict.fromkeys(own, 100.0)
    assert len(seen.maps) == 2
    for _ in range(3):  # as said
        clock.now_s += DRIFT_S
        await seen.member._step()
    assert len(seen.maps) == 2


async def sleep(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the clock jump by more than a session."""
    await seen.member._step()
    seen.member._look_at_clock()
    assert len(seen.maps) == 1
    now_s = monotonic_s() + 7
    monkeypatch.setattr(module, "monotonic_s", lambda: now_s)


async def test_a_sleeper_asks_before_it_goes_on(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    await sleep(seen, monkeypatch)
    heartbeat_with(seen, GroupError.UNKNOWN_MEMBER_ID)
    seen.member._look_at_clock()
    assert (seen.member.state, seen.owned) == (MemberState.FENCED, set())


async def test_a_sleeper_that_is_known_goes_on(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    await sleep(seen, monkeypatch)
    seen.member._look_at_clock()
    assert (seen.member.state, seen.owned) == (MemberState.MEMBER, {1, 2, 3})


async def test_a_sleeper_without_an_answer_keeps_the_last_map(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    await sleep(seen, monkeypatch)
    seen.coordinator.silent = True
    seen.member._look_at_clock()
    assert (seen.member.state, seen.owned) == (MemberState.FROZEN, {1, 2, 3})


# ------------------------------------------------------------------------------------------------------ the probe


Answers = list[Mapping[str, Any] | Exception]


@pytest.mark.parametrize(
    ("answers", "removed"),
    [
        ([{"instance": "b", "boot": 1}, ConnectionRefusedError(), ConnectionRefusedError()], 1),
        ([ConnectionRefusedError(), ConnectionRefusedError(), ConnectionRefusedError()], 0),
        ([{"instance": "b", "boot": 1}, ConnectionRefusedError(), TimeoutError(), ConnectionRefusedError()], 0),
        ([{"instance": "b", "boot": 1}, TimeoutError(), TimeoutError(), OSError()], 0),
        ([{"instance": "b", "boot": 2}], 1),
        ([{"instance": "c", "boot": 2}], 0),
        ([{"instance": "b", "boot": 0}, {}], 0),
        ([{"instance": "b", "boot": "2"}, {"instance": "b", "boot": [2]}, {"instance": {}, "boot": 2}], 0),
    ],
)
async def test_an_instance_is_removed_if_its_process_has_ended(
    seen: Seen, monkeypatch: pytest.MonkeyPatch, answers: Answers, removed: int
) -> None:
    monkeypatch.setattr(module.GroupMember, "_said", _with_probe(module.GroupMember._said))
    seen.coordinator.others["b"] = said_by("b", probe=("b.test", 1))
    await seen.member._step()

    async def answer(name: str, at: tuple[str, int], *_: object) -> Answer:
        assert (name, at) == ("b", ("b.test", 1))
        said = answers.pop(0)
        if isinstance(said, Exception):
            raise said
        return Answer(200, json.dumps(said).encode())

    answers = list(answers)  # one list for both loops
    probe = Probe(seen.member, answer)
    while answers:
        await probe._look()
    assert seen.coordinator.removed == [b"\0\5group\0\3b-1"] * removed


async def test_an_instance_that_stops_is_not_asked_whether_it_is_alive(seen: Seen) -> None:
    """It owns nothing any more, and leaves by itself: a refusal would be logged as an end that was none."""
    seen.coordinator.others["b"] = said_by("b", weight=0.0, probe=("b.test", 1))
    seen.coordinator.others["c"] = said_by("c", probe=("c.test", 1))
    await seen.member._step()
    asked = []

    async def answer(name: str, at: tuple[str, int], *_: object) -> Answer:
        assert (name, at[1]) == ("c", 1)
        asked.append(at[0])
        raise OSError

    await Probe(seen.member, answer)._look()
    assert asked == ["c.test"]


def _with_probe(real: Callable[[GroupMember], MemberMessage]) -> Callable[[GroupMember], MemberMessage]:
    return lambda member: real(member).model_copy(update={"probe": ("a.test", 1)})


# ---------------------------------------------------------------------------------------------------------- faults


def _broken(*_: object) -> None:
    raise ZeroDivisionError


async def test_a_fault_is_noted_and_membership_goes_on(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen.member, "_try", _broken)
    monkeypatch.setattr(seen.member, "_look_at_clock", _broken)
    monkeypatch.setattr(seen.member, "_say_goodbye", _broken)
    probe = Probe(seen.member)
    monkeypatch.setattr(probe, "_look", _broken)
    seen.member.start()
    probe.start()
    seen.member.member_id = "me-1"
    names = ("take part in the group", "look at the clock", "look whether the next instance is alive")
    await until(lambda: all(counts[name] for name in names))
    assert not any(job.done() for job in seen.member._jobs)
    probe.stop()
    await seen.member.leave()
    assert [counts.pop(name) for name in (*names, "leave the group")] == [1, 1, 1, 1]
