import math
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quotas.rate import Rate, Window


class Event(NamedTuple):
    pause_ms: int
    action: str
    value: float


windows = st.builds(Window, st.integers(1, 12), st.sampled_from([1, 7, 100, 1000]))
# Pauses around the borders of a sample, of the least window and of what is kept, as well as any.
pauses = st.one_of(
    st.just(0), st.integers(0, 3), st.sampled_from([99, 100, 101, 999, 1000, 1001]), st.integers(0, 13_000)
)
values = st.one_of(st.integers(0, 3000).map(float), st.floats(0, 1e6))
actions = st.sampled_from(["charge", "charge", "charge", "record", "check", "limit"])
# Taken back is whole numbers only: sums of doubles that cancel out would depend on their order.
unrecords = st.builds(Event, pauses, st.just("record"), st.integers(-30_000, 0).map(float))
events = st.lists(st.builds(Event, pauses, actions, values), max_size=60)
whole_events = st.lists(
    st.one_of(st.builds(Event, pauses, actions, st.integers(0, 3000).map(float)), unrecords), max_size=60
)


class PlainRate:
    """Kafka 3.8's Rate and SampledStat written down once more, without any shortcut: the oracle."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.samples: list[list[float]] = []  # [start, last, sum]
        self.current = 0

    def record(self, value: float, now_ms: int) -> None:
        if not self.samples:
            self.samples.append([now_ms, now_ms, 0.0])
        sample = self.samples[self.current]
        if now_ms - sample[0] >= self.window.size_ms:
            self.current = (self.current + 1) % (self.window.samples + 1)
            if self.current == len(self.samples):
                self.samples.append([0, 0, 0])
            self.samples[self.current] = sample = [now_ms, now_ms, 0.0]
        sample[2] += value
        sample[1] = now_ms

    def throttle_ms(self, limit: float | None, now_ms: int) -> int:
        size_ms, count = self.window.size_ms, self.window.samples
        for sample in self.samples:
            if now_ms - sample[1] >= count * size_ms:
                sample[:] = [now_ms, now_ms, 0.0]
        if not self.samples:
            self.samples.append([now_ms, now_ms, 0.0])
        elapsed_ms = now_ms - min(sample[0] for sample in self.samples)
        elapsed_ms += max(0, count - 1 - elapsed_ms // size_ms) * size_ms
        window_ms = max(elapsed_ms, 1)
        total = 0.0
        for sample in self.samples:
            total += sample[2]
        observed = total / (window_ms / 1000.0)
        if limit is None or observed <= limit:
            return 0
        return min(math.floor((observed - limit) / limit * window_ms + 0.5), 2**31 - 1)


@given(windows, st.one_of(events, whole_events), st.integers(1, 10_000).map(float))
@example(Window(), [Event(0, "record", -5000.0), Event(10_500, "charge", 0.0), Event(500, "charge", 12_000.0)], 1000.0)
@example(Window(), [Event(0, "charge", 5000.0)] * 3 + [Event(10_999, "charge", 0.0), Event(1, "charge", 0.0)], 1000.0)
def test_the_shortcut_gives_what_the_plain_evaluation_gives(window: Window, history: list[Event], limit: float) -> None:
    rate, plain = Rate(window, limit), PlainRate(window)
    bound: float | None = limit
    now_ms = 0
    for pause_ms, action, value in history:
        now_ms += pause_ms
        if action == "limit":
            bound = None if bound else limit + abs(value)
            rate.set_limit(bound)
        elif action == "record":
            rate.record(value, now_ms)
            plain.record(value, now_ms)
        elif action == "check":
            assert rate.check(now_ms) == plain.throttle_ms(bound, now_ms)
        else:
            plain.record(value, now_ms)
            assert rate.charge(value, now_ms) == plain.throttle_ms(bound, now_ms)


@given(windows, events, st.floats(0.5, 1e5))
def test_a_look_moves_nothing_and_sees_what_a_measurement_sees(
    window: Window, history: list[Event], limit: float
) -> None:
    watched, left_alone = Rate(window, limit), Rate(window, limit)
    now_ms = 0
    charged: list[tuple[float, int]] = []
    for pause_ms, _, value in history:
        now_ms += pause_ms
        seen = watched.observe(now_ms)
        measured = Rate(window, limit)
        for each in charged:
            measured.charge(*each)
        measured.purge(now_ms)
        assert seen == measured.observe(now_ms)
        assert watched.charge(value, now_ms) == left_alone.charge(value, now_ms)
        charged.append((value, now_ms))


@given(windows, events, st.floats(0.5, 1e5), events)
def test_rate_with_expired_samples_charges_like_a_new_one(
    window: Window, before: list[Event], limit: float, after: list[Event]
) -> None:
    used, new = Rate(window, limit), Rate(window, limit)
    now_ms = 0
    for pause_ms, _, value in before:
        now_ms += pause_ms
        used.charge(value, now_ms)
    now_ms = max(now_ms, (used.last_ms or 0) + window.keep_ms)
    for pause_ms, _, value in after:
        assert used.charge(value, now_ms) == new.charge(value, now_ms)
        now_ms += pause_ms


@given(windows, events)
def test_the_total_is_all_that_was_recorded(window: Window, history: list[Event]) -> None:
    rate = Rate(window, 100)
    now_ms, total = 0, 0
    for pause_ms, _, value in history:
        now_ms += pause_ms
        rate.charge(int(value), now_ms)
        total += int(value)
        assert rate.recorded_total == total
    rate.reset()
    assert rate.recorded_total == total


@pytest.mark.parametrize(("now_ms", "window_ms"), [(1000, 9500), (500, 10_000), (-600, 9900), (-9000, 9500)])
def test_elapsed_windows_before_the_first_sample_truncate_towards_zero(now_ms: int, window_ms: int) -> None:
    rate = Rate(Window())
    rate.record(1, 1500)
    assert rate.observe(now_ms)[1] == window_ms


def test_rate_without_a_limit_measures_and_never_throttles() -> None:
    rate = Rate(Window())
    assert rate.charge(1e12, 0) == 0
    rate.set_limit(1)
    assert rate.charge(0, 0) == 2**31 - 1  # Kafka would wrap


@pytest.mark.parametrize("limit", [math.nan, math.inf])
def test_rate_with_nan_or_infinite_limit_never_throttles(limit: float) -> None:
    assert Rate(Window(), limit).charge(1e9, 0) == 0


@pytest.mark.parametrize(("samples", "size_ms"), [(0, 1000), (11, 0), (-1, 1000)])
def test_impossible_windows_are_refused(samples: int, size_ms: int) -> None:
    with pytest.raises(ValueError, match=f"{samples} of {size_ms} ms"):
        Window(samples, size_ms)
