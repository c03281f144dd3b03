"""One client with many connections does not shut out the other clients of a counter; on a virtual clock.

The law of a line is in tests/quotas/test_fair_queue.py; the same against a real broker in
tests/integration/test_shut_out.py.
"""

from itertools import pairwise

import pytest

from proxy.session.session import Session
from quotas.engine import Engine, Window
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from tests.proxy.playbook import Play, fetch_answer
from tests.proxy.session.tenants import TENANT, Connection, Consumer, between, cap, most_beyond, policy, run

FETCH = QuotaKind.CONSUMER_BYTE_RATE
START_MS = 1_000_000


def rate(connections: list[Connection], begin_s: int, end_s: int) -> float:
    return between(connections, START_MS + begin_s * 1000, START_MS + end_s * 1000) / (end_s - begin_s)


@pytest.mark.parametrize("other", [cap("bob"), cap(None, "bulk")], ids=["narrower", "wider"])
def test_client_waiting_at_own_cap_does_not_block_tenant_cap(other: Entity) -> None:
    """Thirty connections with a Produce of 40 kB each: the tenant's cap was kept shut for ten seconds for each."""
    play = Play(policy=policy((cap(TENANT), 50_000), (other, 4_000)))
    attackers = [Connection(play, "bob", "bulk", size=40_000) for _ in range(30)]
    victim = Connection(play, "alice", size=1_000)
    run(play, attackers, 0.05)
    run(play, [*attackers, victim], 60)
    assert rate(attackers, 15, 60) < 1.3 * 4_000
    assert rate([victim], 10, 60) > 0.85 * (50_000 - 1.3 * 4_000)
    assert longest_pause_ms(victim) < 5_000
    assert most_beyond([*attackers, victim], 50_000) < 11 + 2 * 40_000 / 50_000


@pytest.mark.parametrize("reconnecting", [False, True])
def test_a_client_has_its_turn_however_many_connections_another_has(reconnecting: bool) -> None:
    """Each turn takes a second or so by Kafka's law: of sixty-one connections in line each had one in a minute."""
    play = Play(policy=policy((cap(TENANT), 10_000)))
    attackers = [Connection(play, "bob", f"bob-{number}") for number in range(60)]
    victim = Connection(play, "alice")
    for round_ in range(40):
        run(play, [*attackers, victim], 1)
        if reconnecting:
            for attacker in attackers[round_ % 4 :: 4]:
                attacker.reconnect()
    assert longest_pause_ms(victim) < 2_500
    assert 0.95 < rate([*attackers, victim], 15, 37) / 10_000 < 1.1


def test_users_sharing_a_client_id_quota_take_turns() -> None:
    play = Play(policy=policy((Entity(client_id="app"), 10_000)))
    attackers = [Connection(play, "ANONYMOUS") for _ in range(60)]
    victim, neighbour = Connection(play, "alice"), Connection(play, "ANONYMOUS", peer="10.0.0.9:6")
    run(play, [*attackers, victim, neighbour], 40)
    assert longest_pause_ms(victim) < 2_500
    assert longest_pause_ms(neighbour) < 5_000


def test_all_addresses_of_one_ipv6_network_have_one_customer_s_turns() -> None:
    """Sixty of them had sixty turns: a client of another network waited for twelve seconds at a time."""
    play = Play(policy=policy((Entity(client_id="app"), 10_000)))
    attackers = [Connection(play, "ANONYMOUS", peer=f"[2001:db8::{number:x}]:6") for number in range(1, 61)]
    victim = Connection(play, "ANONYMOUS", peer="[2001:db8:1::9]:6")
    run(play, [*attackers, victim], 40)
    assert longest_pause_ms(victim) < 2_500


@pytest.mark.parametrize("samples", [6, 11])
def test_consumer_with_small_partition_limit_reaches_its_full_quota(samples: int) -> None:
    """16 kB for each partition, of 1 MB/s: to wait until two seconds' worth were left took a fifth of the quota."""
    limits = policy((Entity(client_id="app"), 1_000_000), kind=FETCH)
    play = Play(policy=limits, engine=Engine(limits, Window(samples, 1000)))
    consumer = Consumer(play, "alice", size=16_000)
    consumer.partition_bytes = 16_000
    run(play, [consumer], 66, step_ms=12)
    assert 0.94 < rate([consumer], 22, 66) / 1_000_000 < 1.06


def test_consumer_of_small_batches_progresses_beside_large_ones() -> None:
    """Their answers were a turn each, of four seconds' worth, and what is known of their batches was taken for those of
    all: .002 of the quota.
    """
    play = Play(policy=policy((Entity(client_id="app"), 50_000), kind=FETCH))
    large: list[Connection] = [Consumer(play, "bob", size=200_000) for _ in range(10)]
    small = Consumer(play, "alice", size=1_000)
    run(play, [*large, small], 120)
    assert rate([small], 20, 120) > 0.05 * 50_000
    assert 0.9 < rate([*large, small], 20, 120) / 50_000 < 1.1


def test_a_client_with_small_requests_does_not_wait_for_many_large_ones() -> None:
    play = Play(policy=policy((cap(TENANT), 20_000)))
    large = [Connection(play, "bob", size=60_000) for _ in range(20)]
    small = Connection(play, "alice", size=1_000)
    run(play, [*large, small], 80)
    assert longest_pause_ms(small) < 7_500
    assert 0.85 < rate([*large, small], 15, 70) / 20_000 < 1.15


def test_throttle_time_excludes_connections_of_other_client() -> None:
    """A client that obeys would otherwise shut itself out: sixty of another one wait, each for a second."""
    play = Play(policy=policy((cap(TENANT), 10_000)))
    attackers = [Connection(play, "bob", size=5_000) for _ in range(60)]
    victim = Connection(play, "alice", size=5_000)
    run(play, [*attackers, victim], 30)
    assert max(victim.told) < 3_500
    assert max(told for attacker in attackers for told in attacker.told) > 20_000


def test_empty_fetches_of_many_do_not_slow_other_member() -> None:
    """Sixty connections that are answered with nothing, and come again, renewed: the member fetches as if alone.

    Also alone it has a pause of ten seconds, after the ten seconds' worth that may be used at once.
    """
    (alone, _), (beside, empty_bytes) = member_beside(0), member_beside(60)
    assert brought(beside) >= 0.95 * (brought(alone) - empty_bytes)
    assert longest_pause_ms(beside) < longest_pause_ms(alone) + 1_000


def member_beside(others: int) -> tuple[Consumer, int]:
    """Return a member, and the bytes of the answers of so many others."""
    play = Play(policy=policy((cap(TENANT), 10_000), kind=FETCH))
    idle: list[Connection] = [Idle(play, "bob", f"made-up-{number}") for number in range(others)]
    member = Consumer(play, "alice", size=1_000)
    for _ in range(40):
        run(play, [*idle, member], 1, step_ms=20)
        for connection in idle[::5]:
            connection.reconnect()
    return member, sum(size for connection in idle for _, size in connection.went)


def brought(connection: Connection) -> int:
    return sum(size for _, size in connection.went if size > 500)


def longest_pause_ms(connection: Connection) -> int:
    """Between two of its requests that went, or answers that came; until now as well."""
    moments = [*(at_ms for at_ms, size in connection.went if size > 500), connection.play.loop.now_ms]
    return max(later - earlier for earlier, later in pairwise(moments))


class Idle(Consumer):
    """Whose Fetches wait at the broker for half a second, and bring nothing."""

    def arrived(self, data: bytes, now_ms: int) -> None:
        session, sent = self.session, self.sent
        self.play.loop.call_later(0.5, lambda: self.answer(session, sent))

    def answer(self, session: Session, sent: int) -> None:
        if session is self.session:
            session.answers.feed(fetch_answer(sent, 0), self.play.loop.now_ms)
