"""The simulation itself, where the answer is known by hand."""

import pytest

from tests.reference.request_level import Shape, run


def test_without_a_limit_requests_go_as_they_fall_due() -> None:
    real = run([300, 0, 100], Shape(100, 1e9), None)
    assert real.served_bytes == [300, 0, 100]
    assert real.requests == [3, 0, 1]
    assert real.waits_s == pytest.approx([0, 0, 0, 0], abs=1e-6)
    assert not real.ever_throttled
    assert real.left_bytes == 0


def test_requests_wait_for_the_bandwidth_of_the_connection() -> None:
    real = run([400, 0, 0, 0], Shape(100, 100.0), None)
    assert real.served_bytes == [100, 100, 100, 100]
    assert real.waits_s == pytest.approx([0, 0.75, 1.5, 2.25])
    assert real.backlog_bytes == 300  # at the end of the first second one is on the line


def test_requests_wait_while_the_counter_is_in_debt() -> None:
    # 1,000 bytes are ten seconds' worth; the 11th request is 0.1 s over, measured over 10 s and 10/11 of one.
    real = run([1100, 0, 0, 0], Shape(100, 1e9), 100.0)
    assert real.throttles_s[:10] == [0] * 10
    assert real.throttles_s[10] == pytest.approx(0.091, abs=0.002)
    assert real.throttled_share == pytest.approx(0.091 / 4, abs=0.001)
    more = run([1300, 0, 0, 0, 0, 0, 0], Shape(100, 1e9), 100.0)
    assert more.throttles_s[10] > 0
    assert more.waits_s[11] == pytest.approx(more.throttles_s[10] - 1 / 13, abs=2e-3)  # due a 13th of a second later


def test_requests_left_at_the_end_are_counted() -> None:
    real = run([3000, 0, 0], Shape(1000, 1e9), 100.0)
    assert real.served_bytes == [2000, 0, 0]
    assert real.left_bytes == 1000
    assert real.muted_s[1:] == [1.0, 1.0]
