"""The simulation of several clients: beside that of one client, and beside the sessions of the proxy itself."""

import pytest

from quotas.entities import Entity
from tests.proxy.playbook import Play
from tests.proxy.session.tenants import TENANT, Connection, between, cap, policy
from tests.proxy.session.tenants import run as run_sessions
from tests.reference.request_level import Shape, run
from tests.reference.together import Client, run_together

SHAPE = Shape(100, 1e5)


@pytest.mark.parametrize("demand", [[3000, 0, 0, 500, 0] * 8, [150] * 40])
def test_one_client_under_a_quota_meets_what_it_meets_alone(demand: list[float]) -> None:
    alone = run(demand, SHAPE, 100.0)
    found = run_together([Client(demand, SHAPE, (0,))], [100.0], seconds=40)
    [met] = found.clients
    assert met.served_bytes == alone.served_bytes
    assert met.muted_s == alone.muted_s
    assert sum(met.requests) == len(alone.waits_s)
    assert sum(found.in_debt_s[0]) <= sum(met.muted_s)


def test_without_limits_all_go_as_they_fall_due() -> None:
    found = run_together(
        [Client([300, 0, 100], SHAPE, (0,), 2), Client([0, 200, 0], SHAPE, (1,))], [None, None], seconds=3
    )
    assert [met.served_bytes for met in found.clients] == [[300, 0, 100], [0, 200, 0]]
    assert found.clients[1].done_s == pytest.approx(2)
    assert all(sum(met.muted_s) == 0 for met in found.clients)


def test_connections_take_turns_under_a_cap() -> None:
    """Both want all of it, and wait as long for an answer; one comes with three requests at a time."""
    greedy = [1e5] + [0.0] * 99
    clients = [Client(greedy, Shape(100, each * 1e5), (0,), each) for each in (3, 1)]
    three, one = (sum(met.served_bytes) for met in run_together(clients, [100.0], seconds=100).clients)
    assert three == pytest.approx(3 * one, rel=0.05)


def test_a_request_waits_for_all_its_counters_and_is_charged_to_all() -> None:
    """The quota's 1,100 bytes are gone at once; the cap, which has room for half as much again, another one uses up."""
    first, other = [9000.0] + [0.0] * 59, [0.0] * 20 + [9000.0] + [0.0] * 39
    alone = run_together([Client(first, SHAPE, (0, 1))], [100.0, 150.0], seconds=60)
    both = run_together([Client(first, SHAPE, (0, 1)), Client(other, SHAPE, (1,))], [100.0, 150.0], seconds=60)
    assert sum(alone.in_debt_s[1]) == 0
    assert sum(alone.clients[0].served_bytes) == pytest.approx(100 * 66, rel=0.1)
    assert sum(both.clients[0].served_bytes) < 0.9 * sum(alone.clients[0].served_bytes)
    assert sum(sum(met.served_bytes) for met in both.clients) <= 150 * 71
    assert sum(both.in_debt_s[1]) > 20


def test_it_is_what_sessions_do() -> None:
    """Alice has a quota and four connections, bob has two under the tenant's cap alone; a broker answers in 10 ms."""
    play = Play(policy=policy((Entity("alice"), 6_000), (cap(TENANT), 20_000)))
    connections = [Connection(play, user) for user, count in (("alice", 4), ("bob", 2)) for _ in range(count)]
    run_sessions(play, connections, 60)
    size = connections[0].went[0][1]
    clients = [
        Client([1e7] + [0.0] * 59, Shape(size, count * size / 0.01), counters, count)
        for count, counters in ((4, (0, 1)), (2, (1,)))
    ]
    found = run_together(clients, [6_000.0, 20_000.0], seconds=60)
    for met, mine in zip(found.clients, (connections[:4], connections[4:]), strict=True):
        assert sum(met.served_bytes) == pytest.approx(between(mine, 1_000_000, 1_060_000), rel=0.05)
        assert sum(met.served_bytes[20:]) == pytest.approx(between(mine, 1_020_000, 1_060_000), rel=0.1)
