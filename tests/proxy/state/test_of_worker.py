"""Rows of a worker with very many clients: how much is done at a time, counted and not timed."""

import asyncio
import gc
from types import SimpleNamespace
from typing import Any, cast

import pytest

from proxy.runtime import tasks
from proxy.runtime.clock import now_ms
from proxy.runtime.tasks import SLICE
from proxy.session.throttling import Throttling
from proxy.state.of_worker import MOST_PEERS, StateOfWorker
from proxy.state.paging import Query
from proxy.usage.metering import Metering
from proxy.usage.meters import Meters
from quotas.engine import Engine
from quotas.entities import ANONYMOUS, Default, Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from tests.proxy.playbook import FakeLoop

pytestmark = pytest.mark.asyncio

PRODUCE = QuotaKind.PRODUCER_BYTE_RATE


class Many:
    """A worker with clients ``c0``, ``c1``, …, of 1 KiB a second each, without sockets."""

    def __init__(self, clients: int) -> None:
        policy = Policy({Entity(user=Default.DEFAULT, client_id=Default.DEFAULT): {PRODUCE: 1024}})
        self.engine = Engine(policy)
        loop = FakeLoop()
        throttling = Throttling(
            mode="enforce",
            window_ms=1000,
            max_delay_ms=None,
            max_hold_ms=8000,
            call_later=loop.call_later,
            clock=loop.clock,
        )
        metering = Metering(None, self.engine)
        metering._meters = Meters(2 * clients)  # with room for all names
        self.accounts = metering.accounts_of("PLAIN")
        for number in range(clients):
            account = self.accounts.hold(1, "alice", f"c{number}")
            account.charge(PRODUCE, number, now_ms())
            account.meter.connections = 1
        self.sessions: list[Any] = []
        listener = SimpleNamespace(name="PLAIN", sessions=self.sessions)
        gate = SimpleNamespace(held=(), usage_of_addresses=lambda: iter(()))
        nothing = cast("Any", None)
        self.state = StateOfWorker(
            self.engine, throttling, metering, cast("Any", gate), [cast("Any", listener)], nothing, lambda _: None
        )

    def connect(self, number: int, client: str) -> None:
        """Add connections that wait for the counter of a client."""
        account = self.accounts.hold(1, "alice", client)
        (bound,) = account.bounds(PRODUCE)
        identity = SimpleNamespace(account=account, user="alice")
        for port in range(number):
            self.sessions.append(
                SimpleNamespace(
                    identity=identity,
                    peer=f"10.0.0.1:{port}",
                    closed=False,
                    connected_ms=0,
                    sasl=SimpleNamespace(authenticated=False, mechanism=None),
                    holder=lambda now_ms, bound=bound: (bound, now_ms + 1000),
                )
            )


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One item for each turn that others get, with the seconds slept."""
    found: list[int] = []
    sleep = asyncio.sleep

    async def counted(delay_s: float) -> None:
        found.append(int(delay_s))
        await sleep(delay_s)

    monkeypatch.setattr(tasks, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": counted}))
    return found


@pytest.mark.slow
@pytest.mark.long
async def test_page_of_100_000_clients_yields_to_event_loop(pauses: list[int]) -> None:
    many = Many(100_000)
    for filters, total in (({}, 100_000), ({"client_id": "c77"}, 1)):
        pauses.clear()
        page = await many.state.page("clients", Query("connections", limit=10, filters=filters))
        assert (page.total, len(page.rows)) == (total, min(total, 10))
        assert len(pauses) >= 100_000 // SLICE
        assert gc.isenabled()


async def test_clients_are_sorted_by_use_with_nearest_quota(pauses: list[int]) -> None:
    page = await Many(10).state.page("clients", Query("used", is_descending=True, limit=2))
    assert [(row.client_id, row.kind, row.limit) for row in page.rows] == [
        (f"c{n}", PRODUCE.value, 1024) for n in (9, 8)
    ]
    assert not pauses


async def test_connections_are_taken_in_slices(pauses: list[int]) -> None:
    many = Many(1)
    many.connect(2000, "c0")
    page = await many.state.page("connections", Query("peer", limit=3))
    assert (page.total, len(page.rows), len(pauses)) == (2000, 3, 2000 // SLICE)


async def test_a_connection_of_a_peer_is_the_only_row_made(pauses: list[int]) -> None:
    many = Many(1)
    many.connect(2000, "c0")
    for session in many.sessions[:-1]:
        del session.holder
    many.sessions[-1].peer = "[::1]:8"
    page = await many.state.page("connections", Query("peer", filters={"peer": "::1:8"}))
    assert ([row.peer for row in page.rows], len(pauses)) == (["[::1]:8"], 2000 // SLICE)


@pytest.mark.parametrize(
    ("user", "mechanism", "proved", "authenticated"),
    [
        (ANONYMOUS, None, False, False),
        ("alice", "SCRAM-SHA-512", True, True),
        (ANONYMOUS, "PLAIN", False, False),
        ("CN=alice", None, False, True),
    ],
)
async def test_a_connection_tells_how_its_user_was_proved(
    user: str, mechanism: str | None, proved: bool, authenticated: bool
) -> None:
    many = Many(1)
    many.connect(1, "c0")
    many.sessions[0].identity.user = user
    many.sessions[0].sasl = SimpleNamespace(authenticated=proved, mechanism=mechanism)
    (row,) = (await many.state.page("connections", Query("peer"))).rows
    assert (row.user, row.mechanism, row.authenticated) == (user, mechanism, authenticated)


async def test_two_thousand_connections_wait_for_one_counter(pauses: list[int]) -> None:
    many = Many(10)
    many.connect(2000, "c7")
    page = await many.state.page("throttled", Query("owed_ms", is_descending=True))
    (row,) = page.rows
    assert (row.user, row.client_id, row.rule) == ("alice", "c7", "user=<default>, client-id=<default>")
    assert (len(row.peers), row.more_peers) == (MOST_PEERS, 2000 - MOST_PEERS)
    assert len(pauses) >= 2000 // SLICE


async def test_requests_are_answered_one_at_a_time() -> None:
    many = Many(10)
    pages = await asyncio.gather(*(many.state.page("clients", Query("client_id")) for _ in range(5)))
    assert [page.total for page in pages] == [10] * 5
    assert gc.isenabled()


async def test_rows_that_several_ask_for_at_once_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    many, read = Many(300), list[object]()
    add = many.state._add

    def counted(*each: Any) -> None:
        read.append(each)
        add(*each)

    monkeypatch.setattr(many.state, "_add", counted)
    orders = (Query("user", limit=1), Query("bytes_in_per_s", limit=2), Query("user", q="c29"))
    found = await asyncio.gather(*(many.state.page("clients", each) for each in orders))
    assert [(page.total, len(page.rows)) for page in found] == [(300, 1), (300, 2), (11, 11)]
    assert len(read) == 300 + 11
    assert not many.state._under_way
    leaving = asyncio.create_task(many.state.page("clients", orders[0]))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    assert (await many.state.page("clients", orders[0])).total == 300
