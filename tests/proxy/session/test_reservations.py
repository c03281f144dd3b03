"""Fetches that fetch nothing take nothing from another member of a cap, in any three seconds; on a virtual clock.

A Fetch reserves what it is expected to bring, and others wait for that. Here it does not come: the Fetch waits at the
broker for records, on sixty connections of one greedy party. The same against a real broker is in
tests/integration/test_reservations.py.
"""

from collections.abc import Callable
from random import Random

import pytest

from proxy.session.session import Session
from quotas.entities import Group
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from tests.proxy.playbook import Play, fetch, fetch_answer
from tests.proxy.session.tenants import Connection, Consumer, between, cap, run

CROWD = 60
LIMIT = 1_000_000
BEGIN_S, END_S = 24, 84
"""Behind two windows: the first allowance comes at once, and the window gives it back at once."""
WINDOW_S = 3
LONG_POLL_MS = 500
USERS = ("alice", "bob", *(f"user-{number}" for number in range(CROWD)))


class Poller(Consumer):
    """Its Fetches wait at the broker, and bring nothing, or ``record_bytes`` once in ``seldom``."""

    record_bytes = 0
    seldom = 1

    def arrived(self, data: bytes, now_ms: int) -> None:
        size = self.record_bytes if self.sent % self.seldom == 0 else 0
        self.answer_later(size, LONG_POLL_MS)

    def answer_later(self, size: int, wait_ms: int) -> None:
        session, sent = self.session, self.sent
        self.play.loop.call_later(wait_ms / 1000, lambda: self.answer(session, sent, size))

    def answer(self, session: Session, sent: int, size: int) -> None:
        if session is self.session:
            session.answers.feed(fetch_answer(sent, size), self.play.loop.now_ms)


class Fed(Poller):
    """A record now and then."""

    record_bytes = 1000
    seldom = 10


class Trickster(Poller):
    """Fetches a single record, so that more is expected, and then waits for others at the end of its partition."""

    def request(self) -> bytes:
        return fetch(self.sent, 1 if self.sent % 2 else LIMIT)

    def arrived(self, data: bytes, now_ms: int) -> None:
        self.answer_later(*((600, 3) if self.sent % 2 else (0, LONG_POLL_MS)))


def of_one_client(play: Play, number: int) -> Connection:
    return Poller(play, "bob")


def of_own_names(play: Play, number: int) -> Connection:
    return Poller(play, "bob", f"bob-{number}")


def of_own_users(play: Play, number: int) -> Connection:
    return Poller(play, USERS[2 + number])


def half_fed(play: Play, number: int) -> Connection:
    return (Fed if number % 2 else Poller)(play, "bob", f"bob-{number}")


class Crowd:
    """A victim with a backlog beside connections that renew their fetches; ``lives_s``: each reconnects so often."""

    def __init__(
        self,
        make: Callable[[Play, int], Connection],
        lives_s: float = 0.0,
        *,
        renames: bool = False,
        connections: int = CROWD,
    ) -> None:
        policy = Policy({cap(Group("tenant")): {QuotaKind.CONSUMER_BYTE_RATE: LIMIT}}, {}, {"tenant": USERS})
        play = Play(policy=policy)
        play.worker.response_limit = LIMIT * 100
        self.start_ms = play.loop.now_ms
        self.others = [make(play, number) for number in range(connections)]
        self.victim = Consumer(play, "alice", size=16_000)
        self.victim.partition_bytes = 200_000
        everybody, chance = [*self.others, self.victim], Random(1)
        for tenth in range(END_S * 10):
            chance.shuffle(everybody)
            run(play, everybody, 0.1, step_ms=20)
            for each in chance.sample(self.others, round(CROWD / lives_s / 10) if lives_s else 0):
                if renames:
                    each.client_id = f"bob-{tenth}-{each.client_id}"[:40]
                each.reconnect()

    def rate(self, connections: list[Connection], begin_s: int, end_s: int) -> float:
        begin_ms = self.start_ms + begin_s * 1000
        return between(connections, begin_ms, begin_ms + (end_s - begin_s) * 1000) / (end_s - begin_s) / LIMIT

    @property
    def worst_window(self) -> float:
        """The part of the limit that the victim got in its worst three seconds."""
        return min(self.rate([self.victim], at_s, at_s + WINDOW_S) for at_s in range(BEGIN_S, END_S - WINDOW_S + 1))


@pytest.mark.long
@pytest.mark.parametrize(
    ("make", "lives_s", "renames"),
    [
        (of_one_client, 0.0, False),
        (of_one_client, 0.5, False),
        (of_own_names, 0.5, False),
        (of_own_names, 1.0, True),
        (of_own_users, 0.0, False),
        (of_own_users, 0.26, False),
        (half_fed, 0.0, False),
        (half_fed, 2.0, False),
    ],
)
def test_fetches_that_fetch_nothing_slow_nobody(
    make: Callable[[Play, int], Connection], lives_s: float, renames: bool
) -> None:
    """The victim had nothing for eight seconds out of eleven."""
    crowd = Crowd(make, lives_s, renames=renames)
    assert crowd.worst_window >= 0.5
    assert 0.95 <= crowd.rate([*crowd.others, crowd.victim], BEGIN_S, END_S) <= 1.05


def test_consumer_alone_is_served_at_an_even_pace() -> None:
    """Less so than beside others: what the window gives back counts in full while its Fetch is at the broker."""
    crowd = Crowd(of_one_client, connections=0)
    assert crowd.worst_window >= 0.3
    assert 0.95 <= crowd.rate([crowd.victim], BEGIN_S, END_S) <= 1.05


@pytest.mark.long
def test_expectation_that_is_raised_and_not_met_slows_nobody() -> None:
    """The victim had .2 of its quota while these used .04."""
    crowd = Crowd(lambda play, number: Trickster(play, USERS[2 + number]))
    others = crowd.rate(crowd.others, BEGIN_S, END_S)
    assert others < 0.1
    assert crowd.worst_window >= 0.5
    assert 0.9 <= crowd.rate([*crowd.others, crowd.victim], BEGIN_S, END_S) <= 1.05
