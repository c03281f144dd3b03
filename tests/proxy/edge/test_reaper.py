"""Sessions that would not end by themselves, over real sockets: peers that read nothing, go away unseen, say nothing.

Nothing here waits for a deadline: the proxy looks when the test says so, by a clock that the test moves. What the
kernel measures, how long a connection has been idle, is held against zero or an hour.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from proxy.edge.open_sessions import CloseReason, SessionReaper
from proxy.session.session import Session
from tests.harness.fake_broker import FakeBroker, fake_broker
from tests.harness.polling import until
from tests.proxy.deaf import Deaf, deaf
from tests.proxy.front import Front, front
from tests.proxy.pki import Pki
from tests.proxy.playbook import PRODUCER, list_offsets, produce

pytestmark = pytest.mark.asyncio

HOUR_S = 3600.0
STEP_MS = 5000
ANSWERS = 100
PADDING = 100_000
ANSWER_BYTES = 12 + PADDING
TLS = pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "TLS"])

Act = Callable[[Deaf, FakeBroker], Awaitable[None]]


async def nothing(client: Deaf, broker: FakeBroker) -> None:
    pass


async def finish(client: Deaf, broker: FakeBroker) -> None:
    client.finish()


async def goodbye(client: Deaf, broker: FakeBroker) -> None:
    await client.say_goodbye()


async def goodbye_and_finish(client: Deaf, broker: FakeBroker) -> None:
    await client.say_goodbye()
    client.finish()


async def reset(client: Deaf, broker: FakeBroker) -> None:
    client.reset()


async def broker_down(client: Deaf, broker: FakeBroker) -> None:
    broker.reset()


@asynccontextmanager
async def served(
    pki: Pki, encrypted: bool, quotas: bool = False, **limits: float
) -> AsyncIterator[tuple[Front, FakeBroker, Deaf, Session]]:
    """One client that has been served once."""
    options: dict[str, object] = {"limits": {"idle_s": HOUR_S, "unread_s": HOUR_S} | limits}
    if quotas:
        options["quotas"] = {PRODUCER: 1024}
    context = pki.client() if encrypted else None
    async with fake_broker() as one:
        one.brokers = {1: ("127.0.0.1", one.port)}
        async with (
            front(one, tls=pki.settings() if encrypted else None, **options) as proxy,
            deaf(proxy.port_1, context) as client,
        ):
            await client.send(list_offsets(1))
            await client.receive(12)
            (session,) = proxy.listener.sessions
            yield proxy, one, client, session


async def block(proxy: Front, broker: FakeBroker, client: Deaf, session: Session) -> None:
    """Have the session wait for a client that does not read."""
    broker.padding = PADDING
    for number in range(ANSWERS):
        await client.send(list_offsets(number))
    await until(lambda: session.unread)


async def mute(broker: FakeBroker, client: Deaf, session: Session) -> None:
    await client.send(produce(1, 20_000))
    await until(lambda: session.held)


async def look_until_over(proxy: Front) -> None:
    """Look until nothing is left: no session, and no place taken by its descriptors."""

    async def look() -> bool:
        await proxy.reaper.look()
        proxy.play.loop.advance(STEP_MS)
        return not (proxy.slots.taken or proxy.listener.sessions)

    await until(look)


async def look_in_vain(proxy: Front, session: Session, step_ms: int = 0) -> None:
    for _ in range(5):
        await proxy.reaper.look()
        proxy.play.loop.advance(step_ms)
        await asyncio.sleep(0.01)
    assert not session.closed


def close_reasons(proxy: Front) -> dict[str, int]:
    counted = {reason.value: proxy.stats.connections["PLAIN", reason.value] for reason in CloseReason}
    return {reason: number for reason, number in counted.items() if number}


# ------------------------------------------------------------------------------------------- clients that do not read


@TLS
async def test_client_that_reads_nothing_is_closed_as_unread(pki: Pki, encrypted: bool) -> None:
    async with served(pki, encrypted, unread_s=30.0) as (proxy, broker, client, session):
        await block(proxy, broker, client, session)
        await look_until_over(proxy)
        assert close_reasons(proxy) == {"unread": 1}


@TLS
async def test_slow_reader_is_kept_and_gets_every_answer(pki: Pki, encrypted: bool) -> None:
    async with served(pki, encrypted, unread_s=30.0) as (proxy, broker, client, session):
        await block(proxy, broker, client, session)
        for _ in range(ANSWERS // 10):
            assert len(await client.receive(10 * ANSWER_BYTES)) == 10 * ANSWER_BYTES
            proxy.play.loop.advance(20_000)
            await proxy.reaper.look()
        assert close_reasons(proxy) == {}


@TLS
@pytest.mark.parametrize("act", [nothing, broker_down])
async def test_a_broker_that_closed_unseen_leaves_ten_seconds(pki: Pki, encrypted: bool, act: Act) -> None:
    async with served(pki, encrypted) as (proxy, broker, client, session):
        await block(proxy, broker, client, session)
        await act(client, broker)
        if act is nothing:
            await look_in_vain(proxy, session, STEP_MS)
        else:
            await look_until_over(proxy)
            assert close_reasons(proxy) == {"unread": 1}


@pytest.mark.parametrize(
    ("encrypted", "act"),
    [
        (False, finish),
        (False, reset),
        (True, goodbye),
        (True, goodbye_and_finish),
        (True, finish),
        (True, reset),
    ],
)
async def test_closed_client_that_does_not_read_is_cut_off(
    pki: Pki, encrypted: bool, act: Act, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.edge.wires.LINGER_S", 0.02)
    async with served(pki, encrypted, unread_s=30.0) as (proxy, broker, client, session):
        await block(proxy, broker, client, session)
        await act(client, broker)
        await look_until_over(proxy)


@pytest.mark.long
async def test_half_closed_client_that_reads_gets_every_answer(pki: Pki) -> None:
    async with served(pki, encrypted=False) as (proxy, broker, client, session):
        await block(proxy, broker, client, session)
        client.finish()
        await look_in_vain(proxy, session, STEP_MS)
        assert len(await client.receive(ANSWERS * ANSWER_BYTES)) == ANSWERS * ANSWER_BYTES
        assert await client.receive(1) == b""
        await look_until_over(proxy)
        assert close_reasons(proxy) == {}


# ----------------------------------------------------------------------------------------- idle and throttled clients


@TLS
async def test_an_idle_session_is_closed(pki: Pki, encrypted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.edge.wires.LINGER_S", 0.02)
    async with served(pki, encrypted, idle_s=0.0) as (proxy, _, client, _):
        await look_until_over(proxy)
        assert close_reasons(proxy) == {"idle": 1}
        assert await client.receive(1) == b""


@TLS
async def test_session_in_use_is_not_closed_as_idle(pki: Pki, encrypted: bool) -> None:
    async with served(pki, encrypted) as (proxy, _, _, session):
        await look_in_vain(proxy, session)


@TLS
async def test_a_throttled_session_is_not_idle_until_its_throttle_is_over(
    pki: Pki, encrypted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.edge.wires.LINGER_S", 0.02)
    async with served(pki, encrypted, quotas=True, idle_s=0.0) as (proxy, broker, client, session):
        await mute(broker, client, session)
        await look_in_vain(proxy, session)
        proxy.play.loop.advance(10**9)
        await look_until_over(proxy)
        assert close_reasons(proxy) == {"idle": 1}


@TLS
@pytest.mark.parametrize("act", [finish, reset])
async def test_a_throttled_client_that_went_away_unseen_is_noticed(
    pki: Pki, encrypted: bool, act: Act, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that has closed is idle after a while, as at a broker; one that was reset is gone at once."""
    monkeypatch.setattr("proxy.edge.wires.LINGER_S", 0.02)
    async with served(pki, encrypted, quotas=True, idle_s=0.0 if act is finish else HOUR_S) as (
        proxy,
        broker,
        client,
        session,
    ):
        await mute(broker, client, session)
        await act(client, broker)
        await look_until_over(proxy)
        assert close_reasons(proxy) == {"idle" if act is finish else "lost": 1}


async def test_a_throttled_client_that_half_closed_gets_its_answer_and_what_it_sent_is_forwarded(pki: Pki) -> None:
    async with served(pki, encrypted=False, quotas=True) as (proxy, broker, client, session):
        await mute(broker, client, session)
        await client.send(list_offsets(2))
        client.finish()
        await look_in_vain(proxy, session)
        proxy.play.loop.advance(10**9)
        assert len(await client.receive(28)) == 28
        assert await client.receive(1) == b""


@TLS
@pytest.mark.parametrize("act", [finish, reset])
async def test_a_request_in_line_of_a_client_that_went_away_unseen_is_dropped_at_its_turn(
    pki: Pki, encrypted: bool, act: Act, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.edge.wires.LINGER_S", 0.02)
    async with served(pki, encrypted, quotas=True) as (proxy, broker, client, session):
        play = proxy.play
        bound = play.engine.resolve("ANONYMOUS", "app", PRODUCER, 1)
        bound.owe(60_000, play.loop.now_ms)
        await client.send(produce(2, 100))
        await until(lambda: session.held)
        await act(client, broker)
        await until(session.client.has_finished)
        assert not session.closed
        play.loop.advance(60_000)
        assert (play.throttling.dropped, bound.recorded_total) == (1, 0)
        await until(lambda: not proxy.listener.sessions)
        assert close_reasons(proxy) == {}


@TLS
async def test_a_broker_that_hangs_keeps_no_session_for_ever(
    pki: Pki, encrypted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.edge.wires.LINGER_S", 0.02)
    async with served(pki, encrypted, idle_s=0.0) as (proxy, broker, client, _):
        broker.silent = True
        await client.send(list_offsets(2))
        client.finish()
        await look_until_over(proxy)


async def test_a_session_that_cannot_be_looked_at_is_the_only_one_that_ends(
    pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(pki, encrypted=False) as (proxy, _, _, session), deaf(proxy.port_1) as other:
        await other.send(list_offsets(1))
        await other.receive(12)
        look_at = SessionReaper._look_at

        def fail_for_one(self: SessionReaper, name: str, looked_at: Session, seen: tuple[int, int] | None) -> None:
            if looked_at is session:
                raise KeyError
            look_at(self, name, looked_at, seen)

        monkeypatch.setattr(SessionReaper, "_look_at", fail_for_one)
        await proxy.reaper.look()
        assert session.closed
        await other.send(list_offsets(2))
        await other.receive(12)
