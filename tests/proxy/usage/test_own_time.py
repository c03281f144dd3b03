"""The proxy's own processor time: few chunks are measured, and everybody is charged what his take."""

from collections.abc import Callable
from itertools import count, cycle, islice, pairwise

import pytest

from proxy.usage.own_time import EVERY, OwnTime


def clock(step_ns: int) -> Callable[[], int]:
    """A clock that takes so long to read, and shows nothing else."""
    readings = count(0, step_ns)
    return lambda: next(readings)


def drawing() -> OwnTime:
    """One that draws the same each time."""
    own = OwnTime(lambda: 0)
    own._random.seed(7)
    return own


@pytest.mark.parametrize("period", [1, 2, 16, EVERY])
def test_dear_chunks_in_any_rhythm_are_charged_what_they_take(period: int) -> None:
    """A client that sends a dear one every so often, and cheap ones between: the sum is what it would be if each was
    measured, but for a tenth by chance.
    """
    own = drawing()
    costs = cycle([100] + [1] * (period - 1))
    number = 2000 * EVERY
    charged = sum(cost * own.weigh(False) for cost in islice(costs, number))
    assert charged == pytest.approx(number * (99 / period + 1), rel=0.15 if period < EVERY else 0.8)


def test_one_of_so_many_is_measured_and_nobody_can_tell_which() -> None:
    own = drawing()
    drawn = [number for number in range(1000 * EVERY) if own.weigh(False)]
    assert len(drawn) == pytest.approx(1000, rel=0.1)
    assert len({after - before for before, after in pairwise(drawn)}) > EVERY


def test_what_may_take_long_is_measured_each_time_and_stands_for_itself() -> None:
    own = OwnTime(lambda: 0)
    assert [own.weigh(True) for _ in range(5)] == [1] * 5


def test_the_reading_of_the_clock_is_no_part_of_it() -> None:
    own = OwnTime(clock(700))
    assert own.since_ns(own.thread_ns()) == 700
    own.calibrate()
    assert own.since_ns(own.thread_ns()) == 0
