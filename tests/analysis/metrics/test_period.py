from datetime import timedelta

import pytest
from pyspark.sql import SparkSession

from analysis.metrics.period import MOST_STEPS, Period, look
from tests.analysis.metrics.conftest import Both
from tests.analysis.records import BEGIN, document, row, usage

pytestmark = pytest.mark.spark


def period(seconds: float) -> Period:
    return Period(BEGIN, BEGIN + timedelta(seconds=seconds), 1000, (11_000,), 1, ("enforce",), 1, 1)


def test_what_is_there(both: Both) -> None:
    [(begin, end, rows, instances, brokers)] = both.oracle(
        "select min(t), max(t + interval_ms), count(*), count(distinct instance), "
        "count(distinct broker) filter (broker >= 0) from rows"
    )
    found = both.period
    assert (found.begin.timestamp() * 1000, found.end.timestamp() * 1000) == pytest.approx((begin, end))
    assert (found.rows, found.instances, found.brokers) == (rows, instances, brokers)
    assert found.modes == ("enforce", "shadow")
    assert found.windows_ms == (11_000, 31_000)
    assert found.interval_ms == 1000


def test_nothing_is_there(spark: SparkSession) -> None:
    assert look(usage(spark, [])) is None


def test_the_interval_of_most_rows_counts(spark: SparkSession) -> None:
    odd = document(0, [row()], interval_ms=300)
    usual = [document(seq, [row()], interval_ms=10_004) for seq in (1, 2)]
    found = look(usage(spark, [odd], usual))
    assert found is not None
    assert found.interval_ms == 10_000


def test_its_dates() -> None:
    whole = Period(BEGIN, BEGIN + timedelta(hours=36), 10_000, (11_000,), 1, ("enforce",), 1, 1)
    assert [str(each) for each in whole.dates()] == ["2026-03-01", "2026-03-02"]
    assert [whole.intervals_on(each) for each in whole.dates()] == [12 * 360, 24 * 360]
    assert sum(map(whole.intervals_on, whole.dates())) == whole.intervals


@pytest.mark.parametrize("seconds", [0.3, 59, 180, 181, 3600, 86_400, 7 * 86_400, 90 * 86_400])
def test_as_many_steps_as_can_be_seen(seconds: float) -> None:
    steps = period(seconds).steps()
    assert 1 <= len(steps) <= MOST_STEPS + 1  # the first and the last are cut
    assert steps[0] <= BEGIN
    last_end = steps[-1] + timedelta(seconds=period(seconds).step_s)
    assert steps[-1] < BEGIN + timedelta(seconds=seconds) <= last_end


@pytest.mark.parametrize("days", [0.001, 0.1, 1, 30, 90, 1000])
def test_a_step_belongs_to_one_date(days: float) -> None:
    assert 86_400 % period(days * 86_400).step_s == 0
