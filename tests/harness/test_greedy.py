import pytest

from tests.harness.greedy import Counter, Outcome
from tests.harness.load import fetch_request, produce_request
from tests.harness.measure import Series
from tests.harness.wire import Address

LIMIT = 1000
AT = Address("127.0.0.1", 1)


def outcome(*samples: tuple[float, float], quantum: int = 0) -> Outcome:
    counter = Counter("c", AT, fetch_request("t", "who", 100), LIMIT, quantum=quantum)
    return Outcome(counter, Series([(0.0, 0), *samples]))


def test_counter_reads_client_id_and_api_of_its_request() -> None:
    fetching = Counter("c", AT, fetch_request("t", "who", 100), LIMIT, quantum=0)
    producing = Counter("c", AT, produce_request("t", "somebody", 400), LIMIT, quantum=0)
    assert (fetching.client_id, fetching.is_produce) == ("who", False)
    assert (producing.client_id, producing.is_produce) == ("somebody", True)


def test_rate_is_that_of_whole_windows_behind_the_first() -> None:
    """Ten seconds' worth at once, then the quota, second by second."""
    steadily = [(10.0 + second, 10.0 * LIMIT + LIMIT * second) for second in range(1, 40)]
    found = outcome((1.0, 10.0 * LIMIT), *steadily)
    assert found.rate(3) == pytest.approx(1.0, rel=0.05)
    assert found.first() == pytest.approx(11.0)


def test_marks_leave_room_for_one_request() -> None:
    found = outcome(quantum=22_000)
    assert found.mark(2) == pytest.approx(1.1 + 1.0)
    assert found.first_mark() == pytest.approx(11.0 + 2.0 + 22.0)


def test_attack_that_gets_nothing_has_rate_zero() -> None:
    assert (outcome().rate(2), outcome().first()) == (0.0, 0.0)


def test_runaway_attack_is_measured_until_it_was_stopped() -> None:
    found = outcome((1.0, 50.0 * LIMIT), (2.0, 100.0 * LIMIT))
    found.counter.ran_away_s = 2.0
    assert found.rate(2) == pytest.approx(100, rel=0.1)
