"""A tenant's users on many connections, each with a next request as soon as it may send one, on a virtual clock."""

from bisect import bisect_left
from collections.abc import Mapping

from proxy.session.session import Session
from quotas.entities import Entity, Group
from quotas.kinds import QuotaKind
from quotas.policy import Policy, Terms
from tests.proxy.playbook import ADDRESSES, FakeWire, Play, fetch, fetch_answer, produce, produce_answer

TENANT = Group("tenant")
GROUPS = {"tenant": ("alice", "bob", "carol")}
KIND = QuotaKind.PRODUCER_BYTE_RATE


def policy(*rules: tuple[Entity, float], kind: QuotaKind = KIND, terms: Mapping[Entity, Terms] | None = None) -> Policy:
    return Policy({entity: {kind: limit} for entity, limit in rules}, terms or {}, GROUPS)


def cap(user: object = None, client_id: object = None) -> Entity:
    return Entity(user, client_id, cap=True)  # type: ignore[arg-type]  # any name


class Connection:
    """One of a user, under a client-id; whose requests have ``size`` bytes of records."""

    def __init__(
        self, play: Play, user: str, client_id: str = "app", size: int = 1000, peer: str = "10.0.0.2:6"
    ) -> None:
        self.play = play
        self.peer = peer
        self.user = user
        self.client_id = client_id
        self.size = size
        self.client, self.broker = FakeWire(), FakeWire()
        self.sent = 0
        self.went: list[tuple[int, int]] = []
        """When how much of it reached the broker."""
        self.told: list[int] = []
        self.session = self._connected()

    def _connected(self) -> Session:
        self.client, self.broker = FakeWire(), FakeWire()
        self.waiting = False
        session = Session(
            self.play.worker,
            self.client,
            lambda endpoint: ADDRESSES.get(endpoint.node_id),
            lambda _: None,
            sasl=self.play.sasl_rules,
            accounts=self.play.listener,
            peer=self.peer,
            user=self.user,
            authenticated=True,
        )
        session.connected(self.broker, 1)
        return session

    def reconnect(self) -> None:
        """Give up what waits, and come again."""
        self.session.close()
        self.session = self._connected()

    def step(self) -> None:
        """Send the next request if the last one has gone; a broker answers at once."""
        now_ms = self.play.loop.now_ms
        if not self.waiting:
            if self.client.paused:
                return
            self.sent += 1
            self.waiting = True
            self.session.requests.feed(self.request(), now_ms)
        if data := self.broker.take():
            self.arrived(data, now_ms)
        if told := self.client.take():
            self.told.append(int.from_bytes(told[-4:], "big"))

    def request(self) -> bytes:
        return produce(self.sent, self.size, client_id=self.client_id.encode())

    def arrived(self, data: bytes, now_ms: int) -> None:
        self.went.append((now_ms, len(data) - 4))
        self.waiting = False
        self.session.answers.feed(produce_answer(self.sent), now_ms)


class Consumer(Connection):
    """Gets as much as its Fetch asks for, in batches of ``size``."""

    partition_bytes = 50_000
    """The most that its one partition brings."""

    def request(self) -> bytes:
        return fetch(self.sent)

    def arrived(self, data: bytes, now_ms: int) -> None:
        max_bytes = int.from_bytes(data[4 + 8 + 2 + 3 + 12 : 4 + 8 + 2 + 3 + 16], "big")
        batch = self.size
        answer = fetch_answer(self.sent, max(min(max_bytes, self.partition_bytes) // batch, 1) * batch)
        self.session.answers.feed(answer, now_ms)

    def step(self) -> None:
        now_ms = self.play.loop.now_ms
        if not self.waiting and not self.client.paused:
            self.sent += 1
            self.waiting = True
            self.session.requests.feed(self.request(), now_ms)
        if data := self.broker.take():
            self.arrived(data, now_ms)
        if answer := self.client.take():
            self.waiting = False
            self.went.append((now_ms, len(answer) - 4))


def run(play: Play, connections: list[Connection], seconds: float, step_ms: int = 10) -> None:
    """Let all of them go on, the one that came last first: who may go is not who asks first."""
    for _ in range(int(seconds * 1000 / step_ms)):
        for connection in reversed(connections):
            connection.step()
        play.loop.advance(step_ms)
        play.engine.expire(play.loop.now_ms)


def most_beyond(connections: list[Connection], limit: float) -> float:
    """Return by how many seconds' worth of ``limit`` what went was ever more than the time that it went in."""
    went = sorted(each for connection in connections for each in connection.went)
    total, least, most = 0.0, 0.0, 0.0
    start_ms = went[0][0] if went else 0
    for at_ms, size in went:
        allowed = limit * (at_ms - start_ms) / 1000
        least = min(least, total - allowed)
        total += size
        most = max(most, total - allowed - least)
    return most / limit


def between(connections: list[Connection], begin_ms: int, end_ms: int) -> int:
    """Return how many bytes went in that time."""
    return sum(
        size
        for connection in connections
        for at_ms, size in connection.went[bisect_left(connection.went, (begin_ms, 0)) :]
        if at_ms < end_ms
    )
