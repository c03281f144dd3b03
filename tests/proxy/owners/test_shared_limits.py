"""Limits that several instances share: real admin ports, and what fails between them."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from secrets import token_hex

import pytest
import pytest_asyncio
from aiohttp import web
from pydantic import ValidationError
from structlog.testing import capture_logs

from proxy.owners import shared_limits
from proxy.owners.messages import Kind, Label, MessageError, Packed, Signing, unseal
from proxy.owners.shared_limits import PATH, Demands, SharedLimits, Shares, divided
from proxy.runtime.faults import counts
from quotas.counted import CLUSTER, CounterKey
from quotas.kinds import QuotaKind
from quotas.shares import Demand
from tests.harness.polling import until
from tests.harness.ports import LOOPBACK

pytestmark = pytest.mark.asyncio

SIGNING = Signing(b"secret", "group")
KEY = CounterKey(QuotaKind.PRODUCER_BYTE_RATE, "", "bätch \ud800", CLUSTER)
OTHER = KEY._replace(client_id="other")


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_limits, "EVERY_S", 0.05)


class Processes:
    """The processes of one instance, without any sessions."""

    def __init__(self, *demand: Demands) -> None:
        self.demand: list[Demands] = list(demand)
        self.parts: Sequence[Shares] = ()
        self.otherwise = 0.0
        self.shared = asyncio.Event()

    async def demands(self) -> list[Demands]:
        return self.demand

    async def share(self, parts: Sequence[Shares], otherwise: float) -> None:
        self.parts, self.otherwise = parts, otherwise
        self.shared.set()

    async def next_share(self) -> float:
        """Return the share of KEY after an exchange that begins from now on."""
        for _ in range(2):  # one may be under way
            self.shared.clear()
            await asyncio.wait_for(self.shared.wait(), 60)
        return self.parts[0].get(KEY, self.otherwise)


@asynccontextmanager
async def served(tell: Callable[[Mapping[str, str]], bytes | None]) -> AsyncIterator[tuple[str, int]]:
    """Serve what ``tell`` returns as an admin port does; yield the address."""

    async def answer(request: web.BaseRequest) -> web.Response:
        body = tell(request.query) if request.path == PATH else None
        return web.Response(status=404) if body is None else web.Response(body=body)

    server = web.Server(answer)
    listening = await asyncio.get_running_loop().create_server(server, LOOPBACK, 0)
    try:
        yield listening.sockets[0].getsockname()[:2]
    finally:
        listening.close()
        await server.shutdown(0)


@dataclass
class Member:
    """A ``GroupMember``, as far as it is asked here."""

    instance: str
    boot: int = 1
    signing: Signing = SIGNING
    group: "Mapping[str, tuple[int, tuple[str, int] | None]]" = field(default_factory=dict)

    @property
    def member_id(self) -> str:
        return f"{self.instance}-1"

    @property
    def peers(self) -> Mapping[str, tuple[int, tuple[str, int] | None]]:
        return {each: at for each, at in self.group.items() if each != self.instance}


def limits_of(processes: Processes, member: Member) -> SharedLimits:
    return SharedLimits(processes.demands, processes.share, lambda: True, member)  # type: ignore[arg-type]  # a fake


class Group:
    """Instances that know each other, as the map of owners has them."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.members: dict[str, tuple[int, tuple[str, int] | None]] = {}
        self._stack = stack

    async def join(self, name: str, *demand: Demands, boot: int = 1, signing: Signing = SIGNING) -> Processes:
        processes = Processes(*demand)
        asking = limits_of(processes, Member(name, boot, signing, self.members))
        self.members[name] = (boot, await self._stack.enter_async_context(served(asking.tell)))
        asking.start()
        self._stack.callback(asking.stop)
        return processes


@pytest_asyncio.fixture
async def group() -> AsyncIterator[Group]:
    async with AsyncExitStack() as stack:
        yield Group(stack)


async def test_shares_follow_the_demand_of_all_processes(group: Group) -> None:
    one = await group.join("edge-1", {KEY: Demand(1.0, 3)}, {})
    two = await group.join("edge-2", {KEY: Demand(1.0, 1), OTHER: Demand(0.1)})
    assert await two.next_share() == pytest.approx(0.25, abs=0.02)
    assert await one.next_share() == pytest.approx(0.75, abs=0.02)
    assert one.otherwise == pytest.approx(1 / 3)
    assert one.parts[1][KEY] < 0.01  # a process of edge-1 that uses nothing
    two.demand = [{}]
    await two.next_share()
    assert await one.next_share() > 0.97


@pytest.mark.parametrize(
    "other",
    [
        {"signing": Signing(b"another secret", "group")},
        {"boot": 7},  # a process that has ended, and whose port another one has
    ],
)
async def test_instance_with_bad_signature_or_boot_leaves_an_equal_share(
    group: Group, other: dict[str, object]
) -> None:
    one = await group.join("edge-1", {KEY: Demand(1.0, 3)})
    await group.join("edge-2", {KEY: Demand(9.0, 1000)}, **other)  # type: ignore[arg-type]
    group.members["edge-2"] = (1, group.members["edge-2"][1])
    assert await one.next_share() == 0.5


async def test_instance_without_address_counts_as_one_waiting_client(group: Group) -> None:
    one = await group.join("edge-1", {KEY: Demand(1.0, 1)})
    group.members["edge-2"] = (1, None)
    assert await one.next_share() == pytest.approx(0.5, abs=0.02)


async def test_silent_instance_keeps_its_share_then_an_equal_one_until_removed_from_map(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_limits, "_STALE_S", 60.0)
    async with AsyncExitStack() as of_one:
        group = Group(of_one)
        one = await group.join("edge-1", {KEY: Demand(1.0, 3)})
        async with AsyncExitStack() as of_two:
            there = Group(of_two)
            there.members = group.members
            await there.join("edge-2", {KEY: Demand(1.0, 1)})
            await one.next_share()
            assert await one.next_share() == pytest.approx(0.75, abs=0.02)
        assert await one.next_share() == pytest.approx(0.75, abs=0.02)
        monkeypatch.setattr(shared_limits, "_STALE_S", 0.0)
        assert await one.next_share() == 0.5
        del group.members["edge-2"]
        assert await one.next_share() == 1


async def test_a_demand_for_many_counters_is_read_to_its_end(group: Group) -> None:
    one = await group.join("edge-1", {KEY: Demand(1.0, 3)})
    many = {KEY._replace(client_id=token_hex(32)): Demand(0.1) for _ in range(4000)}  # more than comes at once
    await group.join("edge-2", {KEY: Demand(1.0, 9)} | many)
    async with asyncio.timeout(120):
        while await one.next_share() != pytest.approx(0.25, abs=0.02):  # half while nothing is known of edge-2
            pass
    assert await one.next_share() == pytest.approx(0.25, abs=0.02)


async def test_single_instance_has_the_whole_cluster_limit(group: Group) -> None:
    one = await group.join("edge-1", {KEY: Demand(1.0, 3)})
    assert await one.next_share() == 1
    assert one.otherwise == 1


ASKED = {"instance": "edge-2", "member_id": "edge-2-1", "turn": "made up"}
LABEL = Label(Kind.DEMAND, "edge-2", "edge-2-1", "made up")


async def said_of(*demand: Demands, asked: Mapping[str, str] = ASKED) -> bytes:
    processes = Processes(*demand)
    telling = limits_of(processes, Member("edge-1"))
    telling.start()
    await processes.next_share()
    said = telling.tell(asked)
    telling.stop()
    assert said is not None
    return said


async def test_demand_message_is_signed_and_keeps_surrogate_names() -> None:
    demand = {KEY: Demand(0.5, 2)}
    said = await said_of(demand)
    (rows,) = shared_limits._read(said, SIGNING, LABEL).processes
    assert dict(map(shared_limits._demand, rows)) == demand
    with pytest.raises(MessageError):
        unseal(said, Signing(b"other", "group"), LABEL)


@pytest.mark.parametrize("changed", [{"instance": "edge-3"}, {"member_id": "edge-2-2"}, {"turn": "earlier"}])
async def test_demand_told_for_another_asker_or_turn_is_refused(changed: dict[str, str]) -> None:
    said = await said_of({KEY: Demand(0.5, 2)}, asked=ASKED | changed)
    with pytest.raises(MessageError, match="another receiver or time"):
        shared_limits._read(said, SIGNING, LABEL)


async def test_answer_to_an_earlier_turn_is_not_heard_and_that_is_logged_once(group: Group) -> None:
    """Somebody between two instances, who repeats what has been said."""
    one = await group.join("edge-1", {KEY: Demand(1.0, 3)})
    heard: list[bytes] = []

    def repeat(asked: Mapping[str, str]) -> bytes | None:
        heard.append(there.tell(asked) or b"")
        return heard[0]

    wanting = Processes({KEY: Demand(9.0, 1000)})
    there = limits_of(wanting, Member("edge-2"))
    await there._take_turn()
    async with served(repeat) as at:
        with capture_logs() as logs:
            group.members["edge-2"] = (1, at)
            while len(heard) < 4:
                await one.next_share()
    said = [line["heard"] for line in logs if line["event"] == "demand of another instance"]
    assert said == [False]  # the first answer was to its turn: then no other one
    assert await one.next_share() < 0.1


@pytest.mark.parametrize("name", ["edge-1", "edge-2"])
async def test_twenty_thousand_made_up_names_in_two_processes_are_cut_by_worth(name: str) -> None:
    """Their demand has more bytes than a message may have; who waits is told before who does not."""
    names = [f"{number:05}{token_hex(100)}" for number in range(20_000)]
    own = [
        {KEY._replace(client_id=each): Demand(0.5 + number / 1e5, number % 2) for number, each in enumerate(names)}
        for _ in range(2)
    ]
    text = shared_limits._text(Member(name), own)  # type: ignore[arg-type]  # a fake
    packed = Packed(text, shared_limits._MOST_BYTES, shared_limits._FAST)
    processes = shared_limits._read(packed.signed(SIGNING, LABEL), SIGNING, LABEL).processes
    assert 7_000_000 < len(text) <= shared_limits._MOST_TEXT_BYTES
    for rows, whole in zip(processes, own, strict=True):
        told = dict(map(shared_limits._demand, rows))
        assert 10_000 < len(told) < 20_000
        assert told.items() <= {key: Demand(round(each.used, 6), each.waiting) for key, each in whole.items()}.items()
        assert sum(each.waiting for each in told.values()) == 10_000
        idle = [each.used for each in whole.values() if not each.waiting]
        least = min(each.used for each in told.values() if not each.waiting)
        assert sum(used > least for used in idle) < len(told) - 10_000 + 1


async def test_demand_is_packed_before_it_is_asked_for() -> None:
    """An asker waits for 0.4 s, and packing 8 MB may take longer: it only signs what lies there."""
    processes = Processes({KEY: Demand(0.5, 2)})
    telling = limits_of(processes, Member("edge-1"))
    await telling._take_turn()
    before = telling._packed
    assert before is not None
    assert telling.tell(ASKED) == before.signed(SIGNING, LABEL)
    assert telling._packed is before


@pytest.mark.parametrize(
    "rows",
    [
        [["producer_byte_rate", "", "", 0, 0, -1, 0]],
        [["producer_byte_rate", "", "", 0, 0, 1, -1]],
        [["no_kind", "", "", 0, 0, 1, 0]],
        [["producer_byte_rate", "", {}, 0, 0, 1, 0]],
        [["producer_byte_rate", "", "", 0, 0, "NaN", 0]],
        [[]],
    ],
)
async def test_signed_demand_with_invalid_rows_is_refused(rows: list[object]) -> None:
    text = json.dumps({"instance": "edge-1", "boot": 1, "processes": [rows]}).encode()
    with pytest.raises(ValidationError):
        shared_limits._read(Packed(text).signed(SIGNING, LABEL), SIGNING, LABEL)


async def test_unheard_process_leaves_no_other_more_than_an_equal_share() -> None:
    ((part,), _) = (tuple(each.values()) for each in divided([{KEY: Demand(1.0, 9)}, {}, None], 2))
    assert part == pytest.approx(1 / 3)


async def test_fault_in_demand_exchange_is_counted_and_exchange_continues(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await group.join("edge-1", {KEY: Demand(1.0, 1)})

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as broken:
        broken.setattr(shared_limits, "divided", fail)
        await until(lambda: counts["exchange the demand for limits of the cluster"])
    await one.next_share()
    assert counts.pop("exchange the demand for limits of the cluster") == 1
