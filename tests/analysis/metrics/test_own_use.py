"""What is usual of a client by its own use."""

import numpy as np
import pytest

from analysis.metrics.own_use import agreed, mean, recent, rising, usual
from analysis.table.arrays import Floats

HOUR = np.zeros(360, dtype=int)
MOMENT = np.arange(360)
ACTIVE = np.full(360, 10_000.0)


def usual_of(used: Floats, muted_ms: Floats) -> Floats:
    return usual(MOMENT, HOUR, used, muted_ms, ACTIVE)


def test_mutes_go_with_use_however_long_the_client_is_there() -> None:
    busy = MOMENT % 30 < 6
    found = usual_of(np.where(busy, 6e7, 2e4), np.where(busy, 9000.0, 0))
    assert found == pytest.approx(np.where(busy, 9000, 0))


def test_a_limit_is_not_proportional_to_use() -> None:
    """Half of what is used in bursts goes on all the time, and is not muted at all."""
    busy = MOMENT % 30 < 6
    found = usual_of(np.where(busy, 5e7, 2.5e7), np.where(busy, 9000.0, 0))
    assert found == pytest.approx(np.where(busy, 9000, 0))


def test_a_mute_while_little_is_used_is_not_ones_own() -> None:
    kept_off = MOMENT % 30 < 6
    used, muted_ms = np.where(kept_off, 1e4, 1e6), np.where(kept_off, 8000.0, 0)
    assert usual_of(used, muted_ms)[kept_off].sum() < 0.25 * muted_ms.sum()


def test_where_use_says_nothing_it_is_the_mean() -> None:
    muted_ms = np.where(MOMENT % 7 == 0, 700.0, 0)
    assert usual_of(np.full(360, 1e6), muted_ms)[1:] == pytest.approx(mean(HOUR, muted_ms, ACTIVE)[1:], rel=0.02)
    assert usual_of(np.zeros(360), muted_ms) == pytest.approx(mean(HOUR, muted_ms, ACTIVE))


def test_each_hour_keeps_what_it_had() -> None:
    hours = MOMENT // 180
    muted_ms = np.where(MOMENT < 180, 100.0, 0)
    found = usual(MOMENT, hours, np.full(360, 5.0), muted_ms, ACTIVE)
    assert found[180:].sum() == 0
    assert found.sum() == pytest.approx(muted_ms.sum())
    assert agreed(hours, np.zeros(360), muted_ms).sum() == 0


def test_of_earlier_use_a_quarter_is_left_in_each_moment() -> None:
    found = recent(np.array([5, 6, 8, 40]), np.array([64.0, 0, 0, 1]))
    assert found == pytest.approx([64, 16, 1, 1])
    assert not len(recent(np.zeros(0, dtype=int), np.zeros(0)))


def test_means_that_never_fall() -> None:
    assert rising(np.array([3.0, 1, 2, 8]), np.ones(4)).tolist() == [2, 2, 2, 8]
    assert rising(np.array([4.0, 1, 6]), np.array([1.0, 4, 1])).tolist() == [1, 1, 6]
    assert rising(np.zeros(2), np.ones(2)).tolist() == [0, 0]
