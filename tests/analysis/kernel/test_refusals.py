"""Laws that refuse, from what intervals say, beside the same law with every event in its own millisecond."""

from collections.abc import Sequence
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.kernel.refusals import Rows, connections, mutations
from quotas.connections import ConnectionRates
from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from quotas.mutations import Ruling
from quotas.policy import Policy
from quotas.rate import Window
from quotas.token_bucket import TokenBucket

WINDOW = Window()
END_MS = 10**9
Event = tuple[int, int]
"""(when in ms, how much)."""

EVENTS = st.lists(st.tuples(st.integers(0, 120_000), st.integers(1, 60)), min_size=1, max_size=60).map(sorted)
LIMITS = st.sampled_from([0.5, 1.0, 3.0, 10.0, 40.0])
INTERVALS_MS = st.sampled_from([500, 1000, 5000])


def recorded(events: Sequence[Event], interval_ms: int) -> Rows:
    """Rows of intervals, as the proxy counts them."""
    found: dict[int, list[int]] = {}
    for at_ms, amount in events:
        sums = found.setdefault(at_ms // interval_ms, [0, 0])
        sums[0] += amount
        sums[1] += 1
    number = np.array(list(found), dtype=np.intp)
    amount, parts = np.array(list(found.values())).T
    return Rows(
        number * interval_ms, np.full_like(number, interval_ms), amount.astype(float), parts, np.zeros(len(number))
    )


def carried_out(events: Sequence[Event], limit: float) -> list[int]:
    """When each event is, in ms: by the rule that the proxy judges by, and clients come again when they are told to."""
    bucket = TokenBucket(WINDOW, limit)
    found, free_ms = [], 0
    for at_ms, amount in events:
        now_ms = max(at_ms, free_ms)
        while True:
            ruling = Ruling(bucket, strict=True)
            if ruling.accepts(amount, now_ms):
                break
            now_ms += max(ruling.throttle_ms(now_ms), 1)
        free_ms = now_ms
        found.append(now_ms)
    return found


@given(EVENTS, LIMITS, INTERVALS_MS)
def test_partitions_wait_as_long_as_they_do_by_the_event_but_for_what_an_interval_does_not_tell(
    events: list[Event], limit: float, interval_ms: int
) -> None:
    """The bound of docs/analysis-whatif.md: an interval, and what the largest request takes to be made good."""
    found = mutations(recorded(events, interval_ms), limit, WINDOW, END_MS)
    exact = carried_out(events, limit)
    longest_ms = max(end - at for end, (at, _) in zip(exact, events, strict=True))
    bound_ms = interval_ms + 1000 * max(amount for _, amount in events) / limit
    assert abs(found.throttle_s(1.0) * 1000 / 1.045 - longest_ms) <= bound_ms + 0.045 * longest_ms
    assert found.passed == sum(amount for _, amount in events)
    assert found.waiting == 0


@given(EVENTS, LIMITS)
def test_events_that_have_an_interval_each_are_replayed_to_the_millisecond(events: list[Event], limit: float) -> None:
    at_ms, amount = np.array(events).T
    rows = Rows(at_ms, np.full(len(events), 1), amount.astype(float), np.ones(len(events), dtype=np.intp), amount * 0.0)
    found = mutations(rows, limit, WINDOW, END_MS)
    held = 0
    until_ms = 0
    for end_ms, (begin_ms, _) in zip(carried_out(events, limit), events, strict=True):
        held += max(end_ms - max(begin_ms, until_ms), 0)
        until_ms = max(until_ms, end_ms)
    # Who is refused comes again a millisecond later at the least, each time.
    assert found.throttled_ms == pytest.approx(held, abs=2 * len(events))


def test_what_waits_at_the_end_and_the_most_that_waited() -> None:
    """Eleven at one a second are free; then each overdraft is waited for."""
    events = [(0, 20), (1, 5), (2, 5)]
    found = mutations(recorded(events, 1), 1.0, WINDOW, 12_000)
    # 20 leave the bucket at -9: the next one goes after nine seconds, and the last 5 later.
    assert (found.passed, found.waiting, found.peak_waiting) == (25, 5, 10)
    assert found.throttled_ms == 12_000
    assert found.episodes == 1


def refused(events: Sequence[Event], limit: int) -> int:
    """How many connections the gate would refuse."""
    rates = ConnectionRates(WINDOW, None, {"PLAIN": None})
    rates.apply(Policy({Entity(ip=Default.DEFAULT): {QuotaKind.CONNECTION_CREATION_RATE: limit}}))
    return sum(rates.admit("PLAIN", "10.0.0.5", at_ms) > 0 for at_ms, amount in events for _ in range(amount))


@given(EVENTS, st.sampled_from([1, 2, 5, 20]), INTERVALS_MS)
def test_connections_are_refused_as_by_the_event_but_for_what_an_interval_does_not_tell(
    events: list[Event], limit: int, interval_ms: int
) -> None:
    """The bound of docs/analysis-whatif.md: whether a burst still falls into the window that another one has used up is
    a matter of milliseconds, and then a window's worth is.
    """
    found = connections(recorded(events, interval_ms), limit, WINDOW, END_MS)
    exact = refused(events, limit)
    asked = sum(amount for _, amount in events)
    turns = ceil((events[-1][0] + 1) / WINDOW.keep_ms)
    bound = limit * (turns * WINDOW.keep_ms + interval_ms) / 1000
    assert abs((asked - found.passed) - exact) <= bound
    assert found.asked == asked


@pytest.mark.parametrize("limit", [2, 10, 30])
@pytest.mark.parametrize("interval_ms", [1000, 5000])
def test_of_steady_overload_no_more_than_a_fiftieth_is_in_doubt(limit: int, interval_ms: int) -> None:
    rng = np.random.default_rng(limit)
    events = [(at_ms, 1) for at_ms in sorted(rng.integers(0, 600_000, 40 * 600).tolist())]
    found = connections(recorded(events, interval_ms), limit, WINDOW, END_MS)
    assert found.asked - found.passed == pytest.approx(refused(events, limit), abs=0.02 * len(events))


@given(EVENTS, st.sampled_from([1, 2, 5, 20]))
def test_attempts_in_a_millisecond_each_are_refused_exactly(events: list[Event], limit: int) -> None:
    at_ms, amount = np.array(events).T
    rows = Rows(at_ms, np.full(len(events), 1), amount.astype(float), amount, amount * 0.0)
    found = connections(rows, limit, WINDOW, END_MS)
    assert found.asked - found.passed == refused(events, limit)


def test_an_address_within_its_limit_is_never_refused() -> None:
    found = connections(recorded([(second * 1000, 5) for second in range(600)], 1000), 6, WINDOW, END_MS)
    assert (found.passed, found.throttled_ms, found.episodes, found.throttle_s(1.0)) == (3000, 0, 0, 0.0)


def test_demand_at_most_is_at_the_begin_of_each_throttle() -> None:
    second = np.arange(6) * 1000
    rows = Rows(
        second, second * 0 + 1000, np.array([1.0, 2, 3, 4, 5, 6]), second * 0 + 1, np.array([0, 900, 900, 0, 0, 10.0])
    )
    most = rows.earliest()
    assert most.begin_ms.tolist() == [0, 1000, 1000, 1000, 4000, 5000]
    assert rows.held_at_the_end
    assert rows.amount.sum() == most.amount.sum()
