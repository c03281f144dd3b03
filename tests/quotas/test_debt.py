"""What a counter owes, beside Kafka's arithmetic (test_rate.py), which it leaves as it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotas.engine import Bound, Engine
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy

PRODUCER = QuotaKind.PRODUCER_BYTE_RATE
LIMIT = 1000


def policy(limit: float) -> Policy:
    return Policy({Entity(client_id="app"): {PRODUCER: limit}})


def counter(limit: float = LIMIT) -> Bound:
    return Engine(policy(limit)).resolve("u", "app", PRODUCER, 1)


def charge(bound: Bound, size: float, now_ms: int) -> int:
    throttle_ms = bound.charge(size, now_ms)
    if throttle_ms:
        bound.owe(throttle_ms, now_ms)
    return throttle_ms


def test_counter_is_in_debt_as_long_as_kafka_throttles() -> None:
    bound = counter()
    assert (bound.shut, bound.may_go(0)) == (False, 0)
    assert charge(bound, 12_000, 0) == 2000
    assert bound.shut
    assert (bound.owed_ms(0), bound.owed_ms(1999), bound.owed_ms(2000)) == (2000, 1, 0)
    assert bound.may_go(500) == 2000
    assert bound.may_go(2000) == 2000
    assert not bound.shut


@pytest.mark.parametrize("pause_ms", [11_000, 11_100, 15_000])
def test_debt_outlives_the_window_and_keeps_the_limit(pause_ms: int) -> None:
    """Twenty seconds' worth at a time, as often as it may: no more than the limit, and what one window holds."""
    bound, now_ms, sent = counter(), 0, 0
    while now_ms < 600_000:
        charge(bound, 20_000, now_ms)
        sent += 20_000
        now_ms = max(bound.may_go(now_ms + pause_ms), now_ms + pause_ms)
    assert sent / LIMIT <= 600 + 11 + 20


@given(st.lists(st.tuples(st.integers(0, 30_000), st.integers(1, 50_000)), max_size=80))
def test_bytes_admitted_never_exceed_window_and_limit(requests: list[tuple[int, int]]) -> None:
    bound, now_ms = counter(), 0
    sent: list[tuple[int, int]] = []
    for pause_ms, size in requests:
        now_ms = max(bound.may_go(now_ms + pause_ms), now_ms + pause_ms)
        charge(bound, size, now_ms)
        sent.append((now_ms, size))
    for first, (begin_ms, _) in enumerate(sent):
        total = 0
        for at_ms, size in sent[first:]:
            assert total <= LIMIT * (11 + 1 + (at_ms - begin_ms) / 1000)  # what came before the last one
            total += size


def test_a_counter_in_debt_is_not_forgotten() -> None:
    engine = Engine(policy(10))
    bound = engine.resolve("u", "app", PRODUCER, 1)
    charge(bound, 10_000, 0)
    assert engine.expire(12_000) == engine.expire(900_000) == 0
    assert engine.resolve("u", "app", PRODUCER, 1).owed_ms(900_000) > 0
    assert engine.expire(1_100_000) == 1


def test_debt_is_judged_anew_by_a_changed_limit() -> None:
    engine = Engine(policy(10))
    bound = engine.resolve("u", "app", PRODUCER, 1)
    charge(bound, 10_000, 0)
    assert bound.owed_ms(0) > 900_000
    engine.apply(policy(1000), 1000)
    assert bound.owed_ms(1000) == 0
    engine.apply(policy(100), 2000)
    assert 80_000 < bound.owed_ms(2000) < 100_000
    engine.apply(Policy(), 3000)
    assert bound.owed_ms(3000) == 0


def test_bytes_taken_back_leave_the_sample_they_were_charged_to() -> None:
    bound = counter()
    bound.charge(9000, 0)
    mark = bound.mark
    bound.charge(500, 1500)
    bound.take_back(8000, mark)
    assert bound.recorded_total == 1500
    assert bound.left(1500) == pytest.approx(9500)
    assert bound.charge(8000, 1600) == 0
    bound.take_back(8000, bound.mark)
    mark = bound.mark
    bound.charge(10, 14_000)  # it has expired meanwhile: nothing of it counts, and nothing is given for it
    before = bound.left(14_000)
    bound.take_back(500, mark)
    assert bound.left(14_000) == before
