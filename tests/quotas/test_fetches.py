from collections.abc import Iterable

import pytest

from quotas.engine import Bound, Engine
from quotas.entities import Entity
from quotas.fetches import DISTRUST_MS, GATHER_S, RESERVED_MS
from quotas.kinds import QuotaKind
from quotas.policy import Policy

CONSUMER = QuotaKind.CONSUMER_BYTE_RATE
LIMIT = 100_000
AT_ONCE = 10 * LIMIT
WINDOW = 11 * LIMIT
ALL = 1 << 30
BATCH = 16_000
EMPTY = 90


def counter(sharers: Iterable[object] = ("a",), limit: float = LIMIT) -> Bound:
    engine = Engine(Policy({Entity(client_id="app"): {CONSUMER: limit}}))
    bound = engine.resolve("u", "app", CONSUMER, 1)
    for who in sharers:
        bound.fetches.join(who)
    bound.charge(0, 0)
    return bound


def known(sharers: Iterable[object], size: int = BATCH) -> Bound:
    """One whose sharers have each had an answer of that size, that nobody was charged for."""
    bound = counter(sharers)
    for who in sharers:
        bound.fetches.grant(who, size if size > EMPTY else ALL, 0)
        bound.fetches.answered(who, size)
    return bound


def fetched(bound: Bound, who: object, size: int, now_ms: int) -> None:
    bound.fetches.answered(who, size)
    throttle_ms = bound.charge(size, now_ms)
    if throttle_ms:
        bound.owe(throttle_ms, now_ms)


def reserved(bound: Bound, who: object) -> float:
    return bound.fetches._fetchers[who].reserved


def test_single_consumer_is_granted_burst_then_rest_of_window() -> None:
    bound = counter()
    assert bound.fetches.grant("a", ALL, 0) == AT_ONCE
    fetched(bound, "a", 600_000, 0)
    assert bound.fetches.grant("a", ALL, 10) == WINDOW - 600_000
    fetched(bound, "a", 400_000, 10)
    assert bound.fetches.grant("a", 1000, 20) == 1000


def test_consumers_of_one_counter_are_granted_equal_shares() -> None:
    bound = known(range(4))
    assert {bound.fetches.grant(who, ALL, 0) for who in range(4)} == {WINDOW // 4}


def test_fetches_go_one_by_one_until_batch_size_is_known() -> None:
    bound = counter(range(8))
    assert bound.may_go(0) == 0
    bound.fetches.grant(0, ALL, 0)
    assert bound.may_go(5) == RESERVED_MS  # what the first may bring is as much as is left
    fetched(bound, 0, BATCH, 10)
    assert bound.may_go(10) == 10


@pytest.mark.parametrize("limit", [1_000, 50_000, 10_000_000])
def test_idle_consumers_poll_side_by_side_at_any_quota(limit: int) -> None:
    """The first of them shows that there is nothing; from then on nobody waits for another's poll."""
    bound = counter(range(40), limit)
    now_ms = bound.may_go(0)
    bound.fetches.grant(0, ALL, now_ms)
    now_ms = bound.may_go(now_ms)
    assert now_ms <= RESERVED_MS
    for poll in range(3):
        for who in range(40):
            if poll or who:
                assert bound.may_go(now_ms) == now_ms
                bound.fetches.grant(who, ALL, now_ms)
        assert bool(bound.fetches) is (limit == 10_000_000 and not poll)
        for who in range(40):
            bound.fetches.answered(who, EMPTY)
        now_ms += 500


def test_idle_consumers_take_nothing_from_a_busy_one() -> None:
    idle = range(19)
    bound = counter([*idle, "busy"])
    for who in idle:
        bound.fetches.grant(who, ALL, 0)
        bound.fetches.answered(who, EMPTY)
    bound.fetches.grant("busy", 1000, 0)
    bound.fetches.answered("busy", 1000)
    for who in idle:
        bound.fetches.grant(who, ALL, 1)
    assert bound.may_go(2) == 2
    assert bound.fetches.grant("busy", ALL, 2) == AT_ONCE


def test_max_bytes_of_idle_fetches_is_lowered_to_equal_share() -> None:
    bound = known(range(20), EMPTY)
    assert {bound.fetches.grant(who, ALL, 1) for who in range(20)} == {WINDOW // 20}


def test_fetch_without_early_response_sets_nothing_aside() -> None:
    bound = known(["silent", "other"])
    bound.fetches.grant("silent", ALL, 0)
    assert reserved(bound, "silent") > 0
    assert bound.fetches.covers("silent", 1)
    bound.may_go(RESERVED_MS)
    assert reserved(bound, "silent") == 0
    assert not bound.fetches.covers("silent", 1000)
    bound.fetches.answered("silent", BATCH)
    bound.fetches.grant("silent", ALL, RESERVED_MS)
    assert reserved(bound, "silent") == 0, "others have waited in vain just now"
    bound.fetches.answered("silent", BATCH)
    bound.fetches.grant("silent", ALL, RESERVED_MS + DISTRUST_MS)
    assert reserved(bound, "silent") > 0, "now that it has brought something"


def test_connections_that_leave_without_an_answer_are_not_waited_for() -> None:
    """Sixty that fetch nothing and come again, and one that would fetch."""
    bound = known(["victim"])
    for number in range(60):
        bound.fetches.join(number)
        bound.fetches.grant(number, ALL, number)
        bound.fetches.leave(number)
    for number in range(60, 120):
        bound.fetches.join(number)
        bound.fetches.grant(number, ALL, number)
    assert bound.may_go(120) == 120
    assert bound.fetches.grant("victim", ALL, 120) >= AT_ONCE // 2


def test_fetches_without_allowance_wait_to_gather_records() -> None:
    """Twenty for whom records come half as fast again as the quota lets them: not each record by a Fetch of its own."""
    bound, now_ms, count = known(range(20), 1000), 0, 0
    bound.charge(WINDOW, 0)
    brought = dict.fromkeys(range(20), 0)
    while now_ms < 66_000:
        now_ms = bound.may_go(now_ms)
        for who in brought:
            there = now_ms * LIMIT * 3 // 2 // 1000 // 20 - brought[who]
            size = min(bound.fetches.grant(who, ALL, now_ms), there)
            brought[who] += size
            fetched(bound, who, size, now_ms + 3)
            count += 1
        now_ms += 5
    assert count <= 20 * 66 / GATHER_S
    assert sum(brought.values()) >= 0.95 * 55 * LIMIT


def test_the_quota_is_used_though_fetches_wait() -> None:
    bound, now_ms, sent = known(range(20), 1000), 0, 0
    while now_ms < 330_000:
        now_ms = bound.may_go(now_ms)
        for who in range(20):
            size = min(bound.fetches.grant(who, ALL, now_ms), 20_000)
            fetched(bound, who, size, now_ms + 3)
            sent += size
        now_ms += 5
    assert 0.95 <= sent / (now_ms / 1000 * LIMIT) <= 1.05


def test_a_batch_larger_than_granted_is_what_is_reserved_from_then_on() -> None:
    bound = known(range(100), 1000)
    bound.fetches.grant(0, ALL, 0)
    fetched(bound, 0, 600_000, 0)  # one batch
    bound.fetches.grant(0, ALL, 1)
    assert reserved(bound, 0) >= 400_000
    assert bound.may_go(2) > 2


def test_consumer_that_leaves_sets_nothing_aside() -> None:
    bound = known(["a", "b"])
    bound.fetches.grant("a", ALL, 0)
    bound.fetches.forget("a")
    bound.fetches.forget("a")
    assert bound.may_go(1) == 1
    bound.fetches.grant("a", ALL, 1)
    bound.fetches.leave("a")
    assert not bound.fetches
    assert bound.fetches.grant("b", ALL, 1) == AT_ONCE
    bound.fetches.leave("b")
    assert not bound.fetches._fetchers
    assert not bound.fetches._active


def test_answers_without_data_wait_for_no_debt() -> None:
    bound = known(["a"])
    assert bound.fetches.covers("a", EMPTY)
    assert not bound.fetches.covers("a", 1000)


def broker(max_bytes: int, batch: int, overhead: int = 80) -> int:
    """Return the size of an answer from a log of such batches: cut at max_bytes, but never less than one."""
    return max(max_bytes, batch) + overhead


@pytest.mark.parametrize("batch", [150, 2_000, 9_000, 16_384, 300_000, 2_000_000])
def test_most_fetched_bytes_are_whole_batches_within_the_quota(batch: int) -> None:
    bound, now_ms, sent, whole = counter(), 0, 0, 0
    while now_ms < 300_000:
        now_ms = bound.may_go(now_ms)
        max_bytes = bound.fetches.grant("a", 50_000_000, now_ms)
        size = broker(max_bytes, batch)
        sent += size
        whole += (size - 80) // batch * batch
        fetched(bound, "a", size, now_ms)
        now_ms += 5
    assert sent <= (now_ms / 1000 + 12) * LIMIT + batch
    assert whole >= 0.9 * sent
    assert sent >= 0.9 * now_ms / 1000 * LIMIT


def test_tiny_batches_come_many_at_a_time_also_after_nothing_came() -> None:
    bound = counter()
    for number in range(64):
        max_bytes = bound.fetches.grant("a", 50_000_000, 20_000 * number)
        size = broker(max_bytes, 150) if number % 3 else EMPTY
        fetched(bound, "a", size, 20_000 * number)
    asked = []
    for number in range(64, 96):
        asked.append(bound.fetches.grant("a", 50_000_000, 20_000 * number))
        fetched(bound, "a", broker(asked[-1], 150), 20_000 * number)
    assert asked.count(1) <= 2


def test_fetch_within_an_equal_share_is_granted_whole() -> None:
    bound = known(["a", 1, 2, 3], 1000)
    assert not bound.fetches.grant_whole("a", AT_ONCE // 4 + 1, 1)
    assert bound.fetches.grant_whole("a", AT_ONCE // 4, 1)


def test_pipelined_fetches_are_reserved_one_by_one_and_never_beyond_what_is_left() -> None:
    bound = known(["a"], AT_ONCE // 4)
    fetches = bound.fetches
    asked = AT_ONCE // 4
    assert [fetches.grant_whole("a", asked, 1) for _ in range(6)] == [True] * 4 + [False] * 2
    fetched(bound, "a", asked, 2)
    fetches.join("b")
    assert not fetches.grant_whole("b", asked, 3)  # it came: it is charged instead
    fetches.forget("a")
    assert not fetches._reserved


def test_whole_grant_equals_the_grant_computed_in_full() -> None:
    for size in (1, 1000, LIMIT, AT_ONCE // 2, AT_ONCE - 5000, AT_ONCE - 1, AT_ONCE):
        short, long = known(["a"], 1000), known(["a"], 1000)
        for bound in (short, long):
            bound.charge(2000, 0)
        if short.fetches.grant_whole("a", size, 500):
            assert long.may_go(500) == 500
            assert long.fetches.grant("a", size, 500) == size
            assert (short.fetches._reserved, short.left(500)) == (long.fetches._reserved, long.left(500))
        else:
            assert size > AT_ONCE - 5000


def test_counter_in_debt_grants_no_fetch_whole() -> None:
    bound = known(["a"], 1000)
    fetched(bound, "a", 2 * AT_ONCE, 0)
    assert not bound.fetches.grant_whole("a", 1, 1)
    assert not bound.fetches.grant_whole("a", 1, 60_000)  # the window has to be rolled first
    assert bound.may_go(60_000) == 60_000
    bound.charge(1, 60_000)
    assert bound.fetches.grant_whole("a", 1, 60_001)


def test_a_grant_that_no_answer_took_is_reserved_once() -> None:
    bound = known(["a", "b"], 1000)
    assert bound.fetches.grant_whole("b", AT_ONCE // 4, 1)
    assert bound.fetches.grant_whole("a", AT_ONCE // 4, 1)
    bound.fetches.grant("a", 1000, 2)
    bound.fetches.grant("a", 1000, 3)
    assert bound.fetches._reserved == sum(reserved(bound, who) for who in ("a", "b"))
