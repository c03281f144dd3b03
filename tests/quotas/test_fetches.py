import pytest

from quotas.engine import Bound, Engine
from quotas.entities import Entity
from quotas.fetches import SET_ASIDE_MS
from quotas.kinds import QuotaKind
from quotas.policy import Policy

CONSUMER = QuotaKind.CONSUMER_BYTE_RATE
LIMIT = 100_000
ALLOWANCE = 10 * LIMIT


def counter() -> Bound:
    engine = Engine(Policy({Entity(client_id="app"): {CONSUMER: LIMIT}}))
    bound = engine.resolve("u", "app", CONSUMER, 1)
    bound.fetches.sharers = 1
    return bound


def fetched(bound: Bound, who: str, size: int, now_ms: int) -> None:
    bound.fetches.answered(who, size)
    throttle_ms = bound.charge(size, now_ms)
    if throttle_ms:
        bound.owe(throttle_ms, now_ms)


def set_aside(bound: Bound, who: str) -> float:
    grant = bound.fetches._grants.get(who)
    return 0 if grant is None else grant.set_aside


def test_one_alone_gets_what_the_window_has_left() -> None:
    bound = counter()
    assert bound.fetches.grant("a", 1 << 30, 0) == ALLOWANCE
    fetched(bound, "a", 600_000, 0)
    assert bound.fetches.grant("a", 1 << 30, 10) == 400_000
    fetched(bound, "a", 400_000, 10)
    assert bound.fetches.grant("a", 1 << 30, 20) == LIMIT // 4
    assert bound.fetches.grant("b", 1000, 30) == 1000


def test_sharers_share() -> None:
    bound = counter()
    bound.fetches.sharers = 4
    assert bound.fetches.grant("a", 1 << 30, 0) == ALLOWANCE // 4


def test_while_nothing_is_known_of_batches_one_goes_after_the_other() -> None:
    bound = counter()
    bound.fetches.sharers = 8
    assert bound.may_go(0) == 0
    bound.fetches.grant("a", 1 << 30, 0)
    assert bound.may_go(5) == SET_ASIDE_MS  # what the first may bring is as much as is left
    fetched(bound, "a", 16_000, 10)
    assert bound.may_go(10) == 10


def test_once_batches_are_known_to_be_small_idle_consumers_poll_side_by_side() -> None:
    bound = counter()
    bound.fetches.sharers = 20
    for number in range(30):
        bound.fetches.grant("first", 1 << 30, number)
        fetched(bound, "first", 2_000, number)
    now_ms = 20_000
    for number in range(20):
        assert bound.may_go(now_ms) == now_ms
        bound.fetches.grant(number, 1 << 30, now_ms)


def test_what_was_set_aside_lapses() -> None:
    bound = counter()
    bound.fetches.grant("silent", 1 << 30, 0)
    assert set_aside(bound, "silent") >= 500_000
    assert bound.may_go(SET_ASIDE_MS) == SET_ASIDE_MS
    assert set_aside(bound, "silent") == 0
    assert not bound.fetches.covers("silent", 1)


def test_an_answer_larger_than_granted_is_what_is_set_aside_from_then_on() -> None:
    bound = counter()
    bound.fetches.sharers = 100
    for number in range(40):
        bound.fetches.grant("a", 1 << 30, number)
        fetched(bound, "a", 1000, number)
    now_ms = 20_000
    bound.fetches.grant("a", 1 << 30, now_ms)
    fetched(bound, "a", 600_000, now_ms)  # one batch
    bound.fetches.grant("a", 1 << 30, now_ms + 1)
    assert set_aside(bound, "a") >= 600_000
    assert bound.may_go(now_ms + 2) > now_ms + 2


def test_who_leaves_sets_nothing_aside() -> None:
    bound = counter()
    bound.fetches.grant("a", 1 << 30, 0)
    bound.fetches.forget("a")
    bound.fetches.forget("a")
    assert bound.may_go(1) == 1
    assert bound.fetches.grant("b", 1 << 30, 1) == ALLOWANCE


def broker(max_bytes: int, batch: int, overhead: int = 80) -> int:
    """Return the size of an answer from a log of such batches: cut at max_bytes, but never less than one."""
    return max(max_bytes, batch) + overhead


@pytest.mark.parametrize("batch", [150, 2_000, 9_000, 16_384, 300_000, 2_000_000])
def test_little_of_what_is_sent_is_a_part_of_a_batch(batch: int) -> None:
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
        size = broker(max_bytes, 150) if number % 3 else 90
        fetched(bound, "a", size, 20_000 * number)
    asked = []
    for number in range(64, 96):
        asked.append(bound.fetches.grant("a", 50_000_000, 20_000 * number))
        fetched(bound, "a", broker(asked[-1], 150), 20_000 * number)
    assert asked.count(1) <= 2


def test_where_all_might_ask_for_as_much_they_go_as_they_are() -> None:
    bound = counter()
    bound.charge(0, 0)
    bound.fetches._least = 1000
    bound.fetches.sharers = 4
    assert not bound.fetches.grant_whole("a", ALLOWANCE // 4 + 1, 1)
    assert bound.fetches.grant_whole("a", ALLOWANCE // 4, 1)


def test_pipelined_fetches_are_set_aside_one_by_one_and_never_beyond_what_is_left() -> None:
    bound = counter()
    bound.charge(0, 0)
    fetches = bound.fetches
    fetches._least = 1000
    asked = ALLOWANCE // 4
    assert [fetches.grant_whole("a", asked, 1) for _ in range(6)] == [True] * 4 + [False] * 2
    fetched(bound, "a", asked, 2)
    assert not fetches.grant_whole("b", asked, 3)  # it came: it is charged instead
    fetched(bound, "a", 600, 4)
    assert fetches.grant_whole("b", asked - 600, 5)
    fetches.forget("a")
    fetches.forget("b")
    assert fetches._set_aside == 0
    assert fetches.grant_whole("b", ALLOWANCE - asked - 600, 6)


def test_what_is_granted_whole_is_what_the_long_way_grants() -> None:
    for size in (1, 1000, LIMIT, ALLOWANCE // 2, ALLOWANCE - 5000, ALLOWANCE - 1, ALLOWANCE):
        short, long = counter(), counter()
        for bound in (short, long):
            bound.fetches._least = 100
            bound.charge(2000, 0)
        if short.fetches.grant_whole("a", size, 500):
            assert long.may_go(500) == 500
            assert long.fetches.grant("a", size, 500) == size
            assert (short.fetches._set_aside, short.headroom(500)) == (long.fetches._set_aside, long.headroom(500))
        else:
            assert size > ALLOWANCE - 5000


def test_in_debt_nothing_is_granted_whole() -> None:
    bound = counter()
    fetched(bound, "a", 2 * ALLOWANCE, 0)
    assert not bound.fetches.grant_whole("a", 1, 1)
    assert not bound.fetches.grant_whole("a", 1, 60_000)  # the window has to be rolled first
    assert bound.may_go(60_000) == 60_000
    bound.charge(1, 60_000)
    bound.fetches._least = 100
    assert bound.fetches.grant_whole("a", 1, 60_001)


def test_a_grant_that_no_answer_took_is_set_aside_once() -> None:
    bound = counter()
    bound.charge(0, 0)
    bound.fetches._least = 100
    assert bound.fetches.grant_whole("b", ALLOWANCE // 4, 1)
    assert bound.fetches.grant_whole("a", ALLOWANCE // 4, 1)
    bound.fetches.grant("a", 1000, 2)
    bound.fetches.grant("a", 1000, 3)
    assert bound.fetches._set_aside == sum(set_aside(bound, who) for who in ("a", "b"))
