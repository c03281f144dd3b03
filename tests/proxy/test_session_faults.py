"""A fault in every callback of a session, its listener and its transports: it ends, and nobody else notices."""

import ast
import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from structlog.testing import capture_logs

from proxy.brokers.cluster import NoAnswerError
from proxy.edge import listening
from proxy.edge.arrival import Arrival
from proxy.edge.connection_slots import ConnectionSlot
from proxy.edge.wires import BrokerWire, ClientWire
from proxy.identity.sasl import SaslObserver
from proxy.session.session import Session
from tests.harness.fake_broker import FakeBroker, fake_broker
from tests.harness.polling import until
from tests.proxy.front import Client, Front, client, front
from tests.proxy.pki import Pki
from tests.proxy.playbook import handshake, list_offsets
from tests.proxy.sabotage import Sabotage, fail, sources

pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """To print a traceback takes longer than most of what is tested here."""
    with capture_logs():
        yield


# ---------------------------------------------------------------------------------------------- a session among others


@dataclass
class Scene:
    """A listener, one client that must not notice anything, and what a fault may be met by."""

    broker: FakeBroker
    proxy: Front
    neighbour: Client
    sabotage: Sabotage
    pki: Pki
    monkeypatch: pytest.MonkeyPatch

    async def newcomer(self) -> None:
        """Come, ask, and go."""
        async with client(self.proxy.port_1) as asking:
            await asking.ask(list_offsets(1))

    async def refused(self) -> None:
        async with client(self.proxy.port_1) as asking:
            asking.writer.write(list_offsets(1))
            assert await asking.closed()

    async def nonsense(self) -> None:
        async with client(self.proxy.port_1) as asking:
            await asking.ask(list_offsets(1))
            asking.writer.write(bytes(100))
            assert await asking.closed()


async def delayed(scene: Scene) -> None:
    scene.monkeypatch.setattr(listening, "_PAUSE_S", 0.0)
    async with front(scene.broker, listener_rate=1000) as other:
        for _ in range(10_000):
            other.gate.delay_ms("PLAIN")
        async with client(other.port_1) as asking:
            await asking.ask(list_offsets(1))


async def overdue(scene: Scene) -> None:
    async with front(scene.broker, authentication="sasl", authentication_timeout_s=0.3) as other:
        async with client(other.port_1) as asking, client(other.port_1) as silent:
            await asking.ask(handshake(1, "PLAIN"))
            assert await asking.closed()
            assert await silent.closed()
        await until(lambda: not other.listener.sessions and not other.stats.sessions.total())


async def first_byte(scene: Scene) -> None:
    async with (
        front(scene.broker, tls=scene.pki.settings()) as other,
        client(other.port_1, scene.pki.client()) as asking,
    ):
        await asking.ask(list_offsets(1))


async def lingering(scene: Scene) -> None:
    scene.monkeypatch.setattr("proxy.edge.wires.LINGER_S", 0.0)
    before = set(scene.proxy.listener.sessions)
    async with client(scene.proxy.port_1) as slow:
        await slow.ask(list_offsets(1))
        (session,) = scene.proxy.listener.sessions - before
        end = session.client
        assert isinstance(end, ClientWire)
        while not end._transport.get_write_buffer_size():
            end.write(bytes(1 << 20))
        session.close()
        await until(lambda: scene.sabotage.met)
        session.abort()


async def closing(scene: Scene) -> None:
    with scene.monkeypatch.context() as patch:
        patch.setattr(SaslObserver, "leave", fail)
        await scene.newcomer()
        await until(lambda: scene.sabotage.counted("Session.close") == 1)


async def asked_in_vain(scene: Scene) -> None:
    async def question(_: object) -> None:
        fail()

    with pytest.raises(NoAnswerError, match="internal error"):
        await scene.proxy.cluster.ask(question)


async def probed(scene: Scene) -> None:
    await scene.proxy.cluster.probe(list(scene.proxy.cluster.brokers.values()) * 2)


SCENES: dict[str, Callable[[Scene], Awaitable[None]]] = {
    "accept": Scene.newcomer,
    "accept again": delayed,
    "take a connection": Scene.refused,
    "receive a client": Scene.refused,
    "reject": Scene.nonsense,
    "Session.close": closing,
    "alarm": overdue,
    "wake a waiter for first bytes": first_byte,
    "abort a lingering connection": lingering,
    "ask a broker": asked_in_vain,
    "probe a broker": probed,
}


@asynccontextmanager
async def scene(monkeypatch: pytest.MonkeyPatch, pki: Pki, *wheres: str) -> AsyncIterator[Scene]:
    """At its end all is as before: the neighbour and a newcomer are served, and nobody else is there."""
    async with fake_broker() as one:
        one.brokers = {1: ("127.0.0.1", one.port)}
        async with front(one) as proxy, client(proxy.port_1) as neighbour:
            await neighbour.ask(list_offsets(1))
            there = set(proxy.listener.sessions)
            made = Scene(one, proxy, neighbour, Sabotage(monkeypatch, *wheres), pki, monkeypatch)
            yield made
            await neighbour.ask(list_offsets(2))
            await made.newcomer()
            await until(lambda: proxy.listener.sessions == there and proxy.stats.sessions.total() == 1)


@pytest.mark.long
@pytest.mark.parametrize("where", SCENES)
async def test_fault_in_one_session_leaves_other_sessions_served(
    monkeypatch: pytest.MonkeyPatch, pki: Pki, where: str
) -> None:
    brings_its_own = where in ("ask a broker", "Session.close")
    async with scene(monkeypatch, pki, *([] if brings_its_own else [where])) as played:
        await SCENES[where](played)
        await until(lambda: played.sabotage.met and played.sabotage.counted(where))


async def test_a_client_whose_broker_cannot_be_asked_for_is_cut_off(monkeypatch: pytest.MonkeyPatch, pki: Pki) -> None:
    async with scene(monkeypatch, pki) as played:
        with monkeypatch.context() as patch:
            patch.setattr(played.proxy.cluster, "candidates", fail)
            await played.refused()
        assert played.sabotage.counted("receive a client") == 1


@pytest.mark.uncompiled("the fault is put in place of a method")
async def test_a_client_whose_arrival_fails_after_its_transport_was_there_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, pki: Pki
) -> None:
    async with scene(monkeypatch, pki) as played:
        connect = played.proxy.listener._arriving._connect_to_broker

        async def then_fail(arrival: Arrival, slot: ConnectionSlot, session: Session) -> None:
            await connect(arrival, slot, session)
            fail()

        with monkeypatch.context() as patch:
            patch.setattr(played.proxy.listener._arriving, "_connect_to_broker", then_fail)
            await played.refused()
        assert played.sabotage.counted("receive a client") == 1


# -------------------------------------------------------------------------------------------- callbacks of transports

CALLBACKS = {
    f"{end.__name__}.{name}": getattr(end, name)
    for end in (ClientWire, BrokerWire)
    for name in (*vars(asyncio.Protocol), *vars(asyncio.BaseProtocol))
    if hasattr(end, name) and not name.startswith("_")
}
# The method of the session that each of them calls; None: the session is not made.
CALLED = {
    "ClientWire.connection_made": None,
    "ClientWire.data_received": "feed",
    "ClientWire.eof_received": "client_finished",
    "ClientWire.pause_writing": "blocked",
    "ClientWire.resume_writing": "blocked",
    "ClientWire.connection_lost": "close",
    "BrokerWire.connection_made": None,
    "BrokerWire.data_received": "feed",
    "BrokerWire.eof_received": None,
    "BrokerWire.pause_writing": "blocked",
    "BrokerWire.resume_writing": "blocked",
    "BrokerWire.connection_lost": "broker_lost",
}


async def test_no_protocol_has_callbacks_that_are_missed() -> None:
    assert CALLBACKS.keys() == CALLED.keys()
    subclasses = {
        (file, node.name)
        for file, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and (
            any("Protocol" in ast.unparse(base) and "asyncio." in ast.unparse(base) for base in node.bases)
            or any(isinstance(each, ast.FunctionDef) and each.name == "data_received" for each in node.body)
        )
    }
    others = {("admin/connections.py", "_Connection"), ("brokers/connection.py", "_ClosedByEnd")}  # over others' own
    assert subclasses == {("edge/wires.py", "AsyncioWire"), *others}


IN_PLACE = pytest.mark.uncompiled("the fault is put in place of a method")


@pytest.mark.parametrize(
    "where",
    [
        pytest.param(name, marks=[] if method == "feed" else IN_PLACE)
        for name, method in CALLED.items()
        if method is not None
    ],
)
async def test_a_callback_that_fails_ends_its_own_session(
    monkeypatch: pytest.MonkeyPatch, pki: Pki, where: str
) -> None:
    async with scene(monkeypatch, pki) as played:
        before = set(played.proxy.listener.sessions)
        async with client(played.proxy.port_1) as victim:
            await victim.ask(list_offsets(1))
            (session,) = played.proxy.listener.sessions - before
            ends: dict[str, Any] = {"ClientWire": session.client, "BrokerWire": session.broker}
            end = ends[where.partition(".")[0]]
            with monkeypatch.context() as patch:
                _break(patch, session, end, str(CALLED[where]))
                _call(end, where.partition(".")[2])
                assert await victim.closed()
            await until(lambda: not any(each.is_open for each in ends.values()))
            assert played.sabotage.counted(where) == 1


def _break(patch: pytest.MonkeyPatch, session: Session, end: Any, method: str) -> None:
    """Let ``session`` fail in ``method``, once."""
    if method == "feed":
        end._feed = fail
        return
    real = getattr(Session, method)
    left = [session]

    def broken(self: Session, *args: object) -> object:
        if self in left:
            left.remove(self)
            fail()
        return real(self, *args)

    patch.setattr(Session, method, broken)


def _call(end: Any, callback: str) -> None:
    match callback:
        case "data_received":
            end.data_received(b"x")
        case "connection_lost":
            end._transport.abort()
        case _:
            getattr(end, callback)()


async def test_fault_while_making_session_is_counted_and_client_refused(
    monkeypatch: pytest.MonkeyPatch, pki: Pki
) -> None:
    async with scene(monkeypatch, pki) as played:
        with monkeypatch.context() as patch:
            patch.setattr(played.proxy.listener._arriving, "_begin", fail)
            await played.refused()
        assert played.sabotage.counted("receive a client") == 1
