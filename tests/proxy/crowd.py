"""Many sessions under one engine and one fake clock: clients that want all they can get, and the broker behind them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from struct import unpack_from

from proxy.session.session import Session
from proxy.usage.accounts import Accounts
from quotas.kinds import QuotaKind
from tests.proxy.playbook import CONSUMER, PRODUCER, FakeWire, Play, fetch, fetch_answer, produce, produce_answer

_MAX_BYTES_AT = 4 + 8 + 2 + 3 + 12
"""Of the playbook's Fetch, behind its size, header, client-id, replica_id, max_wait_ms and min_bytes."""
RENEWED_MS = 400


@dataclass(frozen=True, slots=True)
class Shape:
    """``connections`` that each send a request of ``size`` bytes, or ask for so much, as soon as they may.

    A broker sends whole batches of ``batch`` bytes. Who ``obeys`` waits for what he is told; who is ``reconnecting``
    sends each request on a new connection, before the one before it is answered if he is ``impatient``.
    """

    kind: QuotaKind
    connections: int
    size: int
    limit: float
    batch: int = 1000
    obeys: bool = True
    reconnecting: bool = False
    renewing: int = 0
    """So many more connections, each with a Fetch that the broker has no answer for; a new one soon takes its place."""


@dataclass(slots=True)
class Seen:
    """What one client got through, and what it was told; times in ms since the start."""

    passed: list[tuple[int, int]] = field(default_factory=list)
    told_ms: list[int] = field(default_factory=list)
    waited_ms: list[int] = field(default_factory=list)


class Crowd:
    """Runs a shape for ``seconds``; ``seen`` is what each connection saw."""

    def __init__(self, shape: Shape, seconds: int, seed: int = 1, mode: str = "enforce") -> None:
        self.shape = shape
        self.chance = Random(seed)
        self.play = Play({shape.kind: shape.limit}, mode=mode)
        self.play.worker.request_limit = self.play.worker.response_limit = 10**9
        self.start_ms = self.play.loop.now_ms
        self.seconds = seconds
        self.peers = [_Peer(self) for _ in range(shape.connections)]
        self.renewing = [_Renewing(self) for _ in range(shape.renewing)]
        for peer in [*self.peers, *self.renewing]:
            self.later(self.chance.randint(0, 50), peer.send)
        for _ in range(seconds * 10):
            self.play.loop.advance(100)
            self.pump()

    @property
    def now_ms(self) -> int:
        return self.play.loop.now_ms - self.start_ms

    def later(self, ms: int, call: Callable[[], None]) -> None:
        self.play.loop.call_later(ms / 1000, call)

    def pump(self) -> None:
        """Take from the wires whatever a turn may have moved, on any of the connections."""
        for peer in self.peers:
            peer.pump()

    def rate(self, from_s: int, to_s: int) -> float:
        """What got through in that time, by the limit."""
        passed = sum(
            size for peer in self.peers for at_ms, size in peer.seen.passed if from_s * 1000 <= at_ms < to_s * 1000
        )
        return passed / (to_s - from_s) / self.shape.limit

    def parts(self, from_s: int) -> list[float]:
        """What each connection got from then on, by what it would have got in equal parts."""
        parts = [sum(size for at_ms, size in peer.seen.passed if at_ms >= from_s * 1000) for peer in self.peers]
        return [part * len(parts) / sum(parts) for part in parts]


class _Peer:
    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._sent = 0
        self._sent_ms = 0
        self.seen = Seen()
        self._connect()

    def _connect(self) -> None:
        play = self._crowd.play
        self._client, self._broker = FakeWire(), FakeWire()
        self._session = Session(
            play.worker,
            self._client,
            lambda _: None,
            lambda _: None,
            sasl=play.sasl_rules,
            accounts=Accounts(play.meters, play.engine, "PLAIN"),
            peer="10.0.0.1:1",
            user="ANONYMOUS",
            authenticated=True,
        )
        self._session.connected(self._broker, 1)

    def send(self) -> None:
        crowd, shape = self._crowd, self._crowd.shape
        if self._sent and shape.reconnecting:
            self._session.close()
            self._connect()
        self._sent += 1
        self._sent_ms = crowd.now_ms
        make = produce if shape.kind is PRODUCER else fetch
        self._session.requests.feed(make(self._sent, shape.size), crowd.play.loop.now_ms)
        crowd.pump()

    def pump(self) -> None:
        if request := self._broker.take():
            self._crowd.later(self._crowd.chance.randint(2, 5), lambda: self._answer(request, self._session))
        if answer := self._client.take():
            self._take(answer)

    def _answer(self, request: bytes, session: Session) -> None:
        """As the broker does."""
        crowd, shape = self._crowd, self._crowd.shape
        if shape.kind is PRODUCER:
            self.seen.passed.append((crowd.now_ms, len(request) - 4))
            answer = produce_answer(self._sent)
        else:
            most = min(unpack_from(">i", request, _MAX_BYTES_AT)[0], shape.size)
            answer = fetch_answer(self._sent, max(most // shape.batch, 1) * shape.batch)
        session.answers.feed(answer, crowd.play.loop.now_ms)
        crowd.pump()

    def _take(self, answer: bytes) -> None:
        crowd, shape = self._crowd, self._crowd.shape
        at = len(answer) - 4 if shape.kind is PRODUCER else 8
        told_ms: int = unpack_from(">i", answer, at)[0]
        if shape.kind is CONSUMER and len(answer) > shape.batch:
            self.seen.passed.append((crowd.now_ms, len(answer) - 4))
        self.seen.told_ms.append(told_ms)
        self.seen.waited_ms.append(crowd.now_ms - self._sent_ms)
        crowd.later((told_ms if shape.obeys else 0) + crowd.chance.randint(0, 2), self.send)


class _Renewing(_Peer):
    """Waits for records that never come, and comes again before it is told so."""

    def send(self) -> None:
        self._session.close()
        self._connect()
        self._session.requests.feed(fetch(1), self._crowd.play.loop.now_ms)
        self._crowd.later(RENEWED_MS, self.send)
