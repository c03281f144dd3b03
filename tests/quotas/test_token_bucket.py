from hypothesis import given
from hypothesis import strategies as st

from quotas.rate import Window
from quotas.token_bucket import TokenBucket


def test_token_bucket_starts_full_at_the_limit_in_force() -> None:
    bucket = TokenBucket(Window(), 5)
    bucket.set_limit(10)
    assert bucket.tokens(0) == 110


def test_token_bucket_owes_nothing_after_its_throttle_time() -> None:
    bucket = TokenBucket(Window(), 4)
    bucket.record(50, 1000)
    assert bucket.throttle_ms(1000) == 1500
    assert bucket.throttle_ms(2499) == 1
    assert bucket.throttle_ms(2500) == 0


def test_a_changed_limit_keeps_the_tokens_and_moves_the_burst() -> None:
    bucket = TokenBucket(Window(), 10)
    bucket.record(10, 0)
    bucket.set_limit(2)
    assert bucket.tokens(0) == 22
    bucket.set_limit(20)
    assert bucket.tokens(1000) == 42


@given(st.floats(0.1, 1e6), st.lists(st.tuples(st.integers(0, 5000), st.floats(-100, 1000))))
def test_token_bucket_never_holds_more_than_its_burst(limit: float, uses: list[tuple[int, float]]) -> None:
    bucket = TokenBucket(Window(3, 1000), limit)
    now_ms = 0
    for pause_ms, value in uses:
        now_ms += pause_ms
        bucket.record(value, now_ms)
        assert bucket.tokens(now_ms) <= 3 * limit
