"""Peers that mean no good, several on one counter: whatever they do, these hold.

- A mute that is to end later means that the client is not read (THROTTLED).
- What is forwarded under a counter is never more than its law allows.
- A connection that is closed ends its session, and leaves nothing behind: no place, no mute, nothing set aside.
- Nothing is charged, or counted for anybody, before authentication.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from struct import unpack_from

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ProtocolError
from proxy.session.flow import THROTTLED
from proxy.session.session import Session
from proxy.usage.accounts import Accounts
from tests.harness.examples import examples
from tests.proxy.playbook import (
    CONSUMER,
    KIB,
    PRODUCER,
    FakeWire,
    Play,
    fetch,
    fetch_answer,
    heartbeat,
    heartbeat_answer,
    list_offsets,
    list_offsets_answer,
    produce,
    produce_answer,
)

SLOTS = 4
LIMIT = KIB
LARGEST = 40 * KIB
WINDOW_S = 11
SENT: dict[str, Callable[[int], bytes]] = {
    "produce": lambda number: produce(number, 3000),
    "large produce": lambda number: produce(number, LARGEST),
    "claim": lambda number: produce(number, LARGEST),
    "acks 0": lambda number: produce(number, 3000, acks=0),
    "fetch": fetch,
    "fetch twice": lambda number: fetch(number) + fetch(number),
    "old fetch": lambda number: fetch(number, version=4),
    "heartbeat": heartbeat,
    "list offsets": list_offsets,
}
FIRST = {"large produce": 20_000, "claim": 40}
"""How much of it is sent at once, if not all."""
ANSWERS = {"answer": 2000, "large answer": LARGEST}
DONE: dict[str, Callable[[Session], None]] = {
    "read nothing": lambda session: session.blocked("client", True),
    "read again": lambda session: session.blocked("client", False),
    "half-close": Session.client_finished,
    "reset": Session.close,
    "broker gone": Session.broker_lost,
}
DEEDS = (*SENT, "rest", *ANSWERS, "answer", *DONE, "reconnect")
STEPS = st.lists(
    st.tuples(st.sampled_from(DEEDS), st.integers(0, SLOTS - 1), st.sampled_from((0, 0, 7, 500, 3000, 12_000, 40_000))),
    min_size=5,
    max_size=60,
)
"""What is done, on which connection, and how long is waited then."""


@dataclass(slots=True)
class Connection:
    session: Session
    client: FakeWire
    broker: FakeWire
    to_come: bytes = b""
    """Of a request that the client has begun, what it has not sent."""
    at_broker: bytes = b""
    asked: deque[tuple[int, int]] = field(default_factory=deque)
    """(api key, correlation id), in order."""


class World:
    def __init__(self, *, authenticated: bool) -> None:
        self.play = Play({PRODUCER: LIMIT, CONSUMER: LIMIT})
        self.play.worker.request_limit = self.play.worker.unauthenticated_request_limit = 10**9
        self.authenticated = authenticated
        self.start_ms = self.play.loop.now_ms
        self.passed = {PRODUCER: 0, CONSUMER: 0}
        self.sessions: list[Session] = []
        self.connections = [self._connect() for _ in range(SLOTS)]
        self._number = 0

    def _connect(self) -> Connection:
        client, broker = FakeWire(), FakeWire()
        session = Session(
            self.play.worker,
            client,
            lambda _: None,
            lambda _: None,
            sasl=self.play.sasl_rules,
            accounts=Accounts(self.play.meters, self.play.engine, "PLAIN"),
            peer="10.0.0.1:1",
            user="ANONYMOUS",
            authenticated=self.authenticated,
        )
        session.connected(broker, 1)
        self.sessions.append(session)
        return Connection(session, client, broker)

    def do(self, deed: str, slot: int, wait_ms: int) -> None:
        connection = self.connections[slot]
        session = connection.session
        self._number += 1
        if deed in SENT:
            whole = SENT[deed](self._number)
            first = FIRST.get(deed, len(whole))
            self._send(connection, whole[:first], whole[first:])
        elif deed == "rest":
            rest, connection.to_come = connection.to_come, b""
            self._feed(connection, rest)
        elif deed in ANSWERS:
            self._answer(connection, ANSWERS[deed])
        elif deed == "reconnect":
            session.close()
            self.connections[slot] = self._connect()
        elif not session.closed:
            DONE[deed](session)
        self._see()
        for _ in range(wait_ms // 1000 + 1):
            self.play.loop.advance(min(wait_ms, 1000))
            self._see()

    def _send(self, connection: Connection, data: bytes, to_come: bytes = b"") -> None:
        if not connection.to_come:
            connection.to_come = to_come
            self._feed(connection, data)

    def _feed(self, connection: Connection, data: bytes) -> None:
        if connection.client.paused and not connection.session.closed:
            connection.to_come = data + connection.to_come  # the kernel keeps it
        elif not connection.session.closed and data:
            try:
                connection.session.requests.feed(data, self.play.loop.now_ms)
            except ProtocolError as error:
                connection.session.reject("client", error)

    def _answer(self, connection: Connection, size: int) -> None:
        if connection.session.closed or not connection.asked or connection.broker.paused:
            return
        key, number = connection.asked.popleft()
        answer = list_offsets_answer(number)
        if key == 0:
            answer = produce_answer(number)
        elif key == 1:
            answer = fetch_answer(number, size)
        elif key == 12:
            answer = heartbeat_answer(number)
        connection.session.answers.feed(answer, self.play.loop.now_ms)

    def _see(self) -> None:
        """Count what has passed, as the broker or the client sees it, and check what must hold at any time."""
        for connection in self.connections:
            connection.at_broker += connection.broker.take()
            while len(connection.at_broker) >= 12:
                size, key, _, number = unpack_from(">ihhi", connection.at_broker)
                if len(connection.at_broker) < 4 + size:
                    break
                acks = unpack_from(">h", connection.at_broker, 19)[0] if key == 0 else 1
                if acks:
                    connection.asked.append((key, number))
                if key == 0:
                    self.passed[PRODUCER] += size
                connection.at_broker = connection.at_broker[4 + size :]
            came = connection.client.take()
            if len(came) > 1000:
                self.passed[CONSUMER] += len(came)
        for session in self.sessions:
            if session._mute is not None:
                assert session.requests.reasons & THROTTLED
                assert not session.closed
        elapsed_s = (self.play.loop.now_ms - self.start_ms) / 1000
        if self.authenticated:
            for kind in (PRODUCER, CONSUMER):
                # The window's worth, what the limit has made good, and for each connection one request: those that
                # were let go while nothing was owed yet.
                assert self.passed[kind] <= LIMIT * (WINDOW_S + elapsed_s) + (SLOTS + 1) * LARGEST

    def end(self) -> None:
        """Close everything, and see that nothing is left."""
        for connection in self.connections:
            connection.session.close()
        self.play.loop.advance(1000)
        assert all(session.closed for session in self.sessions)
        assert not any(self.play.throttling.queue_sizes().values())
        self.play.throttling.tidy(self.play.loop.now_ms)
        for kind in (PRODUCER, CONSUMER):
            bound = self.play.engine.resolve("ANONYMOUS", "app", kind, 1)
            assert not bound.queue
            assert not bound.claims.streamer
            assert not bound.fetches
            assert not bound.fetches._fetchers
        assert sum(self.play.meters[key].connections for key in self.play.meters) == 0


@pytest.mark.long
@examples(4)
@given(steps=STEPS)
def test_random_hostile_peers_keep_every_quota_invariant(steps: list[tuple[str, int, int]]) -> None:
    world = World(authenticated=True)
    for deed, slot, wait_ms in steps:
        world.do(deed, slot, wait_ms)
    world.end()


@examples(2)
@given(steps=STEPS)
def test_clients_are_not_charged_before_authentication(steps: list[tuple[str, int, int]]) -> None:
    world = World(authenticated=False)
    for deed, slot, wait_ms in steps:
        if "answer" not in deed:  # that would be the proof
            world.do(deed, slot, wait_ms)
    assert world.play.engine.usage(world.play.loop.now_ms) == []
    for session in world.sessions:
        session.close()


@pytest.mark.parametrize("wait_ms", [0, 3000, 12_000, 60_000])
def test_claimed_bytes_that_never_come_are_not_charged(wait_ms: int) -> None:
    world = World(authenticated=True)
    for slot in range(SLOTS):
        world.do("claim", slot, 0)
    world.do("list offsets", 0, wait_ms)
    for slot in range(SLOTS):
        world.do("reset", slot, 0)
    (usage,) = world.play.engine.usage(world.play.loop.now_ms)
    assert usage.charged_total in {36 * claims for claims in range(1, SLOTS + 1)}  # of those that had their turn
    assert sum(world.play.meters[key].produce_bytes for key in world.play.meters) == usage.charged_total
    world.do("reconnect", 0, 0)
    world.do("produce", 0, 1000)
    assert world.passed[PRODUCER] > 3000
    world.end()
