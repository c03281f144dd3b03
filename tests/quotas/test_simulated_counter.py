from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from quotas.rate import Rate, Window
from quotas.simulated_counter import PATIENCE_MS, SimulatedCounter

WINDOW = Window()


def test_simulated_counter_matches_the_rate_until_first_throttle() -> None:
    simulated, rate = SimulatedCounter[str](WINDOW, 100.0), Rate(WINDOW, 100.0)
    for now_ms in range(0, 5000, 100):
        simulated.arrive(15.0, "app", now_ms)
        assert [throttle.throttle_ms for throttle in simulated.settle(now_ms)] == (
            [throttle_ms] if (throttle_ms := rate.charge(15.0, now_ms)) else []
        )


def test_request_within_a_simulated_throttle_is_charged_when_it_ends() -> None:
    simulated = SimulatedCounter[str](WINDOW, 100.0)
    simulated.arrive(1100.0, "a", 0)
    simulated.arrive(100.0, "b", 10)
    (first,) = simulated.settle(10)
    assert (first.whose, first.throttle_ms, first.at_ms) == ("a", 1000, 0)
    assert simulated.settle(999) == []
    (second,) = simulated.settle(1500)
    assert (second.whose, second.at_ms) == ("b", 1000)


@given(st.lists(st.tuples(st.integers(0, 3000), st.floats(0, 5000)), max_size=60), st.floats(1, 1000))
def test_throttles_follow_each_other_and_end(demand: list[tuple[int, float]], limit: float) -> None:
    simulated = SimulatedCounter[int](WINDOW, limit)
    now_ms, begun = 0, []
    for number, (pause_ms, size) in enumerate(demand):
        now_ms += pause_ms
        simulated.arrive(size, number, now_ms)
        begun += simulated.settle(now_ms)
    begun += simulated.settle(now_ms + 10**12)
    assert simulated.over(now_ms + 2 * 10**12)
    for before, after in pairwise(begun):
        assert before.at_ms + before.throttle_ms <= after.at_ms
        assert before.whose < after.whose
    assert all(throttle.at_ms <= now_ms + PATIENCE_MS for throttle in begun)


def test_simulated_waiters_over_a_thousand_are_merged() -> None:
    simulated = SimulatedCounter[str](WINDOW, 10.0)
    for number in range(5000):
        simulated.arrive(1.0, "app", number)
    assert len(simulated._waiting) == 1000
    assert sum(size for size, *_ in simulated._waiting) == 5000


def test_a_request_waits_for_others_from_when_its_connection_would_have_sent_it() -> None:
    simulated = SimulatedCounter[str](WINDOW, 100.0)
    simulated.arrive(1100.0, "a", 0, 1)
    simulated.arrive(200.0, "b", 10, 2)
    simulated.arrive(100.0, "a", 20, 1)  # within its own throttle, and then behind that of b
    throttles = simulated.settle(10_000)
    assert [(each.whose, each.at_ms) for each in throttles] == [("a", 0), ("b", 1000), ("a", 4000)]
    assert [tuple(each) for each in simulated.take_waited()] == [("b", 990, 10), ("a", 3000, 1000)]
    assert simulated.take_waited() == []


def test_simulated_counter_remembers_a_bounded_number_of_connections() -> None:
    simulated = SimulatedCounter[str](WINDOW, 1e9)
    for number in range(50_000):
        simulated.arrive(1.0, "app", number, number)
        simulated.settle(number)
    assert len(simulated._free) <= 1001
