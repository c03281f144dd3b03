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
    assert bound.fetches.covers("silent", 500_000)
    assert bound.may_go(SET_ASIDE_MS) == SET_ASIDE_MS
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
    assert bound.fetches.covers("a", 600_000)
    assert bound.may_go(now_ms + 2) > now_ms + 2


def test_who_leaves_sets_nothing_aside() -> None:
    bound = counter()
    bound.fetches.grant("a", 1 << 30, 0)
    bound.fetches.forget("a")
    bound.fetches.forget("a")
    assert bound.may_go(1) == 1
    assert bound.fetches.grant("b", 1 << 30, 1) == ALLOWANCE
