"""A fault in every callback and every job of the program: whoever met it ends, the neighbours go on, and it is counted.

The list is the program's own (``sabotage.places``): a job that is added without a fault of its own here is missed.
"""

import ast
import asyncio
import errno
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from config.loader import load_settings
from proxy import worker
from proxy.brokers import cluster
from proxy.brokers.cluster import NoAnswerError
from proxy.control import quotas
from proxy.edge import accepting, endings, listeners, transports
from proxy.edge.arrivals import Arrival
from proxy.edge.transports import BrokerEnd, ClientEnd
from proxy.runtime import file_watch as reload
from proxy.runtime import tasks
from proxy.session.session import Session
from proxy.supervisor import Supervisor
from proxy.usage.documents import Document
from proxy.usage.files import FileSink
from tests.harness.ports import free_ports
from tests.proxy.fake_broker import FakeBroker, fake_broker
from tests.proxy.front import TIMEOUT_S, Client, Front, client, end_background, front
from tests.proxy.pki import Pki
from tests.proxy.playbook import handshake, list_offsets
from tests.proxy.sabotage import Sabotage, calls, fail, places, sources

pytestmark = pytest.mark.asyncio

ELSEWHERE = {
    "throttle over": "session/test_throttling.py::test_a_session_that_fails_leaves_the_others_that_are_due_alone",
    "delay queue": "test_containment.py::test_a_delay_queue_that_fails_is_looked_at_again",
    "event loop": "runtime/test_tasks.py::test_what_reaches_the_loop_is_counted_unless_it_is_a_connection_s_end",
    "tell the owner of a token": "identity/test_delegation_tokens.py::test_who_cannot_take_an_owner_is_alone_in_that",
    "ask for delegation tokens": "identity/test_delegation_tokens.py::test_a_question_that_fails_is_not_the_last",
    "render metrics": "test_containment.py::test_a_page_that_fails_is_there_the_next_time",
    "open a broker's port": "edge/test_routes.py::test_a_listener_that_fails_to_open_a_port_keeps_no_other_from_it",
    "complete a usage file": "test_containment.py::test_a_usage_file_that_fails_to_be_completed_is_completed_later",
    "name the brokers of bootstrap sessions": "edge/test_listeners.py::test_who_cannot_be_named_is_named_with_the_next",
    "look at a session": "edge/test_endings.py::test_a_session_that_cannot_be_looked_at_is_the_only_one_that_ends",
    "forget clients that are gone": "runtime/test_tasks.py::test_a_job_that_fails_is_run_again_but_not_at_once",
    "line": "session/test_waits.py::test_a_line_that_cannot_be_dissolved_keeps_no_other_from_it",
    "turn": "session/test_waits.py::test_a_session_that_fails_at_its_turn_is_the_only_one_that_ends",
    "a turn": "runtime/test_turns.py::test_one_that_fails_does_not_keep_the_next_from_its_turn",
    "a session's turn": "session/test_waits.py::test_a_session_that_fails_after_others_had_their_turn_ends",
    "begin TLS handshakes": "edge/test_arrivals.py::test_handshakes_go_on_after_a_fault",
    "a usage file is due": "test_containment.py::test_a_usage_file_that_fails_to_be_completed_is_completed_later",
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """To print a traceback takes longer than most of what is tested here."""
    with capture_logs():
        yield


# --------------------------------------------------------------------------------------------------- nothing is missed


async def test_only_tasks_asks_the_loop_to_run_something() -> None:
    asks = {"create_task", "ensure_future", "call_later", "call_at", "call_soon", "call_soon_threadsafe"}
    asks |= {"add_reader", "add_writer", "add_signal_handler", "TaskGroup", "run_in_executor"}
    found = {(file, name) for file, tree in sources() for name, _ in calls(tree) if name in asks}
    assert {(file, name) for file, name in found if file != "runtime/tasks.py"} == set()
    assert len(found) == 4


async def test_what_goes_on_for_ever_does_so_by_every_or_contains_each_round() -> None:
    """A loop of its own that sleeps ends with its first fault. Those here are bounded, or contain what they do."""
    loops = ((file, node) for file, tree in sources() for node in ast.walk(tree) if isinstance(node, ast.While))
    called = [(file, {name for name, _ in calls(loop)}) for file, loop in loops]
    found = {file for file, names in called if names & {"sleep", "wait"} and "attempt" not in names}
    # It has a deadline; every error is another try; it is a thread that only writes.
    assert found == {"edge/drain.py", "usage/shipping.py", "runtime/log_lines.py"}


async def test_every_place_has_its_fault_here() -> None:
    named = places("spawn", "every", "attempt", "later", "on_readable", "on_signal", "contained", "note", "run")
    assert named == JOBS | SCENES.keys() | ENDS.keys() | ELSEWHERE.keys()
    for test in ELSEWHERE.values():
        file, _, name = test.partition("::")
        assert f"def {name}(" in (Path(__file__).parent / file).read_text(encoding="utf-8")


# ------------------------------------------------------------------------------------------------- recurring jobs

JOBS = (places("every", "run") | places("attempt")) - {
    "ask for delegation tokens",
    "load files again",
    "ship the last usage records",
    "close the admin port",
    "forget clients that are gone",
}
CONFIG = """\
cluster: {{name: test, bootstrap: ["127.0.0.1:{broker}"], refresh: 50ms}}
listeners:
  - {{name: PLAIN, bind: "127.0.0.1:{bind}", advertise: 127.0.0.1, brokers: {{"1": "{port}"}}}}
  - name: SSL
    bind: "127.0.0.1:{secure}"
    advertise: 127.0.0.1
    brokers: {{"1": "{secure_port}"}}
    tls: {{certificate: tls.crt, key: tls.key}}
    cluster: {{bootstrap: ["127.0.0.1:1"], tls: {{ca: ca.pem}}}}
quotas: {{store: {{path: quotas.yaml}}}}
usage: {{interval: 20ms, files: {{directory: usage, rotate_after: 50ms}}}}
admin: {{bind: "127.0.0.1:{admin}"}}
drain: {{delay: 0s, timeout: 1s}}
"""


@dataclass(frozen=True)
class Program:
    app: Supervisor
    task: asyncio.Task[int]
    port: int
    admin: int

    async def get(self, path: str) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.admin)
        writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        return answer


@asynccontextmanager
async def program(folder: Path, broker: FakeBroker) -> AsyncIterator[Program]:
    """The whole program, with everything that recurs."""
    broker.brokers = {1: ("127.0.0.1", broker.port)}
    at = dict(zip(("bind", "port", "secure", "secure_port", "admin"), free_ports(5), strict=True))
    file = folder / "sluice.yaml"
    file.write_text(CONFIG.format(broker=broker.port, **at))
    (folder / "quotas.yaml").write_text("quotas: []\n")
    loop = asyncio.get_running_loop()
    running_app = Supervisor(load_settings(file), file, "asyncio")
    task = asyncio.ensure_future(running_app.run())
    running = Program(running_app, task, at["port"], at["admin"])
    try:
        await until(lambda: answers(running.port))
        yield running
    finally:
        if not task.done():
            os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(TIMEOUT_S):
            await task
        await running_app._admin.stop()  # whatever the test did to it: uvloop waits for it when it closes
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(number)
        await end_background()


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            held = holds()
            if await held if isinstance(held, Awaitable) else held:
                return
            await asyncio.sleep(0.01)


async def answers(port: int) -> bool:
    with suppress(OSError, asyncio.IncompleteReadError):
        async with client(port) as asking:
            await asking.ask(list_offsets(1))
            return True
    return False


async def test_every_job_goes_on_after_its_fault(tmp_path: Path, pki: Pki, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "AFTER_FAULT_S", 0.01)
    monkeypatch.setattr(worker, "_TIDY_EVERY_S", 0.02)
    monkeypatch.setattr(cluster, "_PROBE_S", 0.02)
    monkeypatch.setattr(endings, "ROUND_S", 0.02)
    monkeypatch.setattr(cluster, "_RETRY_S", 0.02)
    monkeypatch.setattr(reload, "POLL_S", 0.02)
    monkeypatch.setattr(quotas, "POLL_S", 0.02)
    sabotage = Sabotage(monkeypatch, *JOBS)
    async with fake_broker() as one, program(tmp_path, one) as running, client(running.port) as neighbour:

        async def all_went_on() -> bool:
            await neighbour.ask(list_offsets(1))
            return sabotage.came_to_an_end >= JOBS

        await until(all_went_on)
        assert {where: sabotage.counted(where) for where in JOBS} == dict.fromkeys(JOBS, 1)
        metrics = (await running.get("/metrics")).decode()
        assert all(f'sluice_internal_errors_total{{where="{where}"}}' in metrics for where in JOBS)


# ----------------------------------------------------------------------------------------------- the end of the program

ENDS = {
    "stop": signal.SIGTERM,
    "load files again": signal.SIGHUP,
    "finish requests in flight": signal.SIGTERM,
    "close a listener": signal.SIGTERM,
    "drain a session": signal.SIGTERM,
    "cut a session off": signal.SIGTERM,
    "ship the last usage records": signal.SIGTERM,
    "close the admin port": signal.SIGTERM,
}


@pytest.mark.parametrize("where", ENDS)
async def test_it_ends_well_whatever_fails_at_the_end(
    tmp_path: Path, pki: Pki, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    async with fake_broker() as one, program(tmp_path, one) as running, client(running.port) as stuck:
        await stuck.ask(list_offsets(1))
        one.silent = where in ("cut a session off", "finish requests in flight")
        stuck.writer.write(list_offsets(2))
        sabotage = Sabotage(monkeypatch, where)
        os.kill(os.getpid(), ENDS[where])
        if where in ("stop", "load files again"):  # a signal that was lost is sent again
            await until(lambda: sabotage.met)
            os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(TIMEOUT_S):
            assert await running.task == 0
        assert (sabotage.met, sabotage.counted(where)) == (True, 1)


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


async def accept_again(scene: Scene) -> None:
    scene.monkeypatch.setattr(accepting, "_PAUSE_S", 0.0)
    acceptor = scene.proxy.listener._acceptor
    acceptor._pause(next(iter(acceptor._listening)), 1, OSError(errno.EMFILE, "too many"))
    await until(lambda: scene.sabotage.met)


async def overdue(scene: Scene) -> None:
    async with front(scene.broker, authentication="sasl", authentication_timeout_s=0.3) as other:
        async with client(other.port_1) as asking:
            await asking.ask(handshake(1, "PLAIN"))
            assert await asking.closed()
        await until(lambda: not other.listener.sessions and not other.stats.sessions.total())


async def arrivals_overdue(scene: Scene) -> None:
    scene.monkeypatch.setattr(listeners, "AFTER_FAULT_S", 0.01)
    async with front(scene.broker, authentication_timeout_s=0.05) as other:
        async with client(other.port_1) as silent:
            assert await silent.closed()
        await until(lambda: not other.stats.sessions.total())


async def first_byte(scene: Scene) -> None:
    async with (
        front(scene.broker, tls=scene.pki.settings()) as other,
        client(other.port_1, scene.pki.client()) as asking,
    ):
        await asking.ask(list_offsets(1))


async def lingering(scene: Scene) -> None:
    scene.monkeypatch.setattr(transports, "LINGER_S", 0.0)
    before = set(scene.proxy.listener.sessions)
    async with client(scene.proxy.port_1) as slow:
        await slow.ask(list_offsets(1))
        (session,) = scene.proxy.listener.sessions - before
        end = session._client
        assert isinstance(end, ClientEnd)
        while not end._transport.get_write_buffer_size():
            end.write(bytes(1 << 20))
        session.close()
        await until(lambda: scene.sabotage.met)
        session.abort()


async def asked_in_vain(scene: Scene) -> None:
    async def question(_: object) -> None:
        fail()

    with pytest.raises(NoAnswerError, match="internal error"):
        await scene.proxy.cluster.ask(question)


async def probed(scene: Scene) -> None:
    await scene.proxy.cluster.probe(list(scene.proxy.cluster.brokers.values()) * 2)


SCENES: dict[str, Callable[[Scene], Awaitable[None]]] = {
    "accept": Scene.newcomer,
    "accept again": accept_again,
    "take a connection": Scene.refused,
    "receive a client": Scene.refused,
    "reject": Scene.nonsense,
    "Session.close": Scene.newcomer,
    "authentication is overdue": overdue,
    "arrivals are overdue": arrivals_overdue,
    "wake who waits for a first byte": first_byte,
    "cut off what lingers": lingering,
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


@pytest.mark.parametrize("where", SCENES)
async def test_a_fault_of_one_is_nobody_else_s(monkeypatch: pytest.MonkeyPatch, pki: Pki, where: str) -> None:
    brings_its_own = where == "ask a broker"
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
        receive = played.proxy.listener._arrivals.receive

        async def then_fail(arrival: Arrival) -> None:
            await receive(arrival)
            fail()

        with monkeypatch.context() as patch:
            patch.setattr(played.proxy.listener._arrivals, "receive", then_fail)
            await played.refused()
        assert played.sabotage.counted("receive a client") == 1


# -------------------------------------------------------------------------------------------- callbacks of transports

CALLBACKS = {
    f"{end.__name__}.{name}": getattr(end, name)
    for end in (ClientEnd, BrokerEnd)
    for name in (*vars(asyncio.Protocol), *vars(asyncio.BaseProtocol))
    if name in vars(end) and not name.startswith("_")
}
# The method of the session that each of them calls; None: the session is not made.
CALLED = {
    "ClientEnd.connection_made": None,
    "ClientEnd.data_received": "feed",
    "ClientEnd.eof_received": "client_finished",
    "ClientEnd.pause_writing": "client_blocked",
    "ClientEnd.resume_writing": "client_blocked",
    "ClientEnd.connection_lost": "close",
    "BrokerEnd.connection_made": None,
    "BrokerEnd.data_received": "feed",
    "BrokerEnd.eof_received": None,
    "BrokerEnd.pause_writing": "broker_blocked",
    "BrokerEnd.resume_writing": "broker_blocked",
    "BrokerEnd.connection_lost": "broker_lost",
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
    assert subclasses == {("edge/transports.py", "ClientEnd"), ("edge/transports.py", "BrokerEnd")}


@pytest.mark.parametrize("where", [name for name, method in CALLED.items() if method is not None])
async def test_a_callback_that_fails_ends_its_own_session(
    monkeypatch: pytest.MonkeyPatch, pki: Pki, where: str
) -> None:
    async with scene(monkeypatch, pki) as played:
        before = set(played.proxy.listener.sessions)
        async with client(played.proxy.port_1) as victim:
            await victim.ask(list_offsets(1))
            (session,) = played.proxy.listener.sessions - before
            ends: dict[str, Any] = {"ClientEnd": session._client, "BrokerEnd": session._broker}
            end = ends[where.partition(".")[0]]
            with monkeypatch.context() as patch:
                _break(patch, session, end, str(CALLED[where]))
                _call(end, where.partition(".")[2])
                assert await victim.closed()
            await until(lambda: all(each._lost for each in ends.values()))
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


async def test_a_session_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch, pki: Pki) -> None:
    async with scene(monkeypatch, pki) as played:
        with monkeypatch.context() as patch:
            patch.setattr(played.proxy.listener._arrivals, "_begin", fail)
            await played.refused()
        assert played.sabotage.counted("ClientEnd.data_received") == 1


# ------------------------------------------------------------------------------------------------------ what is left


async def test_a_page_that_fails_is_there_the_next_time(
    tmp_path: Path, pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fake_broker() as one, program(tmp_path, one) as running:
        sabotage = Sabotage(monkeypatch, "render metrics")
        assert b" 500 " in await running.get("/metrics")
        assert b" 200 OK" in await running.get("/livez")
        assert sabotage.counted("render metrics") == 1
        # Nobody waits for the one that failed any more.
        await until(lambda: _is_there(running))


async def _is_there(running: Program) -> bool:
    return b" 200 OK" in await running.get("/metrics")


async def test_a_delay_queue_that_fails_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "AFTER_FAULT_S", 0.0)
    sabotage, released = Sabotage(monkeypatch, "delay queue"), asyncio.Event()
    worker._release_later(0.0, released.set)
    async with asyncio.timeout(TIMEOUT_S):
        await released.wait()
    assert sabotage.counted("delay queue") == 1


async def test_a_usage_file_that_fails_to_be_completed_is_completed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheres = ("a usage file is due", "complete a usage file")
    sabotage = Sabotage(monkeypatch, *wheres)
    sink = FileSink(tmp_path, "one", "boot", rotate_bytes=1 << 20, rotate_s=0.0, keep_bytes=1 << 30)

    async def both_met() -> bool:
        await sink.write(Document(0, 1, b"{}"))
        return sabotage.met

    await until(both_met)
    await sink.write(Document(0, 1, b"{}"))
    await until(lambda: sink._file is None)  # complete, whatever failed before
    assert [sabotage.counted(where) for where in wheres] == [1, 1]
    await sink.close()
