"""One quota and many connections: together they get what one gets, whatever they do.

The law is that of ``quotas.bound`` and ``quotas.fetches``, the sessions are the real ones; the same against real
brokers is in tests/integration/test_greedy.py and test_consumers_in_numbers.py.
"""

from dataclasses import replace

import pytest

from tests.proxy.crowd import Crowd, Shape
from tests.proxy.playbook import CONSUMER, PRODUCER

SECONDS = 66
FIRST_S = 22
LIMIT = 10_000.0
ALLOWANCE = 10 * LIMIT


def shape(kind: object, connections: int, part: float, batch: float = 0.02) -> Shape:
    """Requests, or answers, of ``part`` of ten seconds' worth; and batches."""
    which = PRODUCER if kind == "produce" else CONSUMER
    return Shape(which, connections, int(part * ALLOWANCE), LIMIT, int(batch * ALLOWANCE))


@pytest.mark.long
@pytest.mark.parametrize("part", [0.02, 0.13, 0.52, 1.0])
@pytest.mark.parametrize("connections", [1, 3, 8])
@pytest.mark.parametrize("obeys", [True, False], ids=["obeys", "does not"])
def test_consumers_get_their_quota(connections: int, part: float, obeys: bool) -> None:
    crowd = Crowd(replace(shape("fetch", connections, part), obeys=obeys), SECONDS)
    assert 0.93 <= crowd.rate(FIRST_S, SECONDS) <= 1.06
    assert crowd.rate(0, 10) <= 1.15
    assert max(told for peer in crowd.peers for told in peer.seen.told_ms) < 2000
    assert min(crowd.parts(FIRST_S)) > 0.7


@pytest.mark.parametrize("part", [0.02, 0.13])
@pytest.mark.parametrize("connections", [1, 3, 8])
def test_producers_get_their_quota(connections: int, part: float) -> None:
    crowd = Crowd(shape("produce", connections, part), SECONDS)
    assert 0.9 <= crowd.rate(FIRST_S, SECONDS) <= 1.1
    assert crowd.rate(0, 10) <= 1.6
    assert min(crowd.parts(FIRST_S)) > 0.3


@pytest.mark.parametrize("kind", ["produce", "fetch"])
@pytest.mark.parametrize("connections", [1, 5])
def test_a_new_connection_for_each_request_gains_nothing(kind: str, connections: int) -> None:
    crowd = Crowd(replace(shape(kind, connections, 0.1), obeys=False, reconnecting=True), SECONDS)
    assert 0.9 <= crowd.rate(FIRST_S, SECONDS) <= 1.1
    assert crowd.rate(0, 10) <= 1.6


@pytest.mark.parametrize("kind", ["produce", "fetch"])
def test_more_than_an_allowance_at_once_makes_progress_and_no_more_than_that(kind: str) -> None:
    """A request or a batch of twenty seconds' worth: the broker's own quota lets no such batch through, ever."""
    crowd = Crowd(replace(shape(kind, 1, 2.0, batch=2.0), obeys=False), 300)
    assert 0.8 <= crowd.rate(FIRST_S, 300) <= 1.1


def test_a_crowd_beyond_its_quota_is_answered_with_nothing_instead_of_held_beyond_its_patience() -> None:
    """Sixty members whose batches are half a second's worth: each one's turn comes every half a minute."""
    crowd = Crowd(replace(shape("fetch", 60, 1.0, batch=0.05), obeys=False), SECONDS)
    assert 0.93 <= crowd.rate(FIRST_S, SECONDS) <= 1.1
    told_ms = max(told for peer in crowd.peers for told in peer.seen.told_ms)  # for which the next one is not read
    assert told_ms < 5000
    assert max(waited for peer in crowd.peers for waited in peer.seen.waited_ms) <= 8_200 + told_ms
    assert min(crowd.parts(FIRST_S)) > 0.4


@pytest.mark.slow
@pytest.mark.parametrize("renewing", [1, 60])
def test_connections_that_fetch_nothing_take_nothing_from_one_that_does(renewing: int) -> None:
    crowd = Crowd(replace(shape("fetch", 1, 1.0, batch=0.004), renewing=renewing), SECONDS)
    assert 0.93 <= crowd.rate(FIRST_S, SECONDS) <= 1.2
    assert crowd.rate(0, 10) >= 1
    assert max(crowd.peers[0].seen.waited_ms) <= 8_100
