import random
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from analysis.metrics.period import Period
from analysis.metrics.trend import AGREEMENT, FARTHEST_DAYS, LEAST_DAYS, days, trend
from analysis.table.parts import Parts
from tests.analysis.metrics.conftest import Both, in_order, of_spark, same
from tests.analysis.records import framed

pytestmark = pytest.mark.spark

SCHEMA = "kind string, counter bigint, date date, day int, p99 double"
FIRST = date(2026, 2, 20)
FIRST_DAY = FIRST.toordinal() - date(1970, 1, 1).toordinal()


def courses(spark: SparkSession, *values: list[float | None]) -> pa.Table:
    """Daily p99 of counters 0, 1, ...; None is a day without use."""
    frame = spark.createDataFrame(
        [
            ("produce", counter, FIRST + timedelta(days=day), FIRST_DAY + day, value)
            for counter, course in enumerate(values)
            for day, value in enumerate(course)
            if value is not None
        ],
        SCHEMA,
    )
    return frame.toArrow()


def test_against_the_oracle(spark: SparkSession, both: Both) -> None:
    chance = random.Random(3)
    courses_ = [
        [
            None if chance.random() < 0.2 else max(0.0, chance.uniform(0, 1) + day * chance.choice((-0.03, 0, 0.02)))
            for day in range(chance.randrange(1, 30))
        ]
        for _ in range(60)
    ]
    frame = courses(spark, *courses_)
    both.duck.register("courses", frame)
    slopes = "(y.p99 - x.p99) / (y.day - x.day)"
    expected = both.oracle(
        """
        with pairs as (select x.counter, {slopes} as slope from courses x join courses y
          on x.counter = y.counter and x.day < y.day),
        slopes as (select counter, median(slope) as slope, avg((slope > 0)::int) as up, avg((slope < 0)::int) as down
          from pairs group by counter),
        n as (select counter, count(*) as days, max(day) as last from courses group by counter),
        now as (select c.counter, median(c.p99 + coalesce(s.slope, 0) * (n.last - c.day)) as now
          from courses c join n using (counter) left join slopes s using (counter) group by c.counter)
        select 'produce', counter, days, slope, greatest(up, down)::double, now, case
          when days >= {least} and now < 1 and up >= {agreement} and slope > 0 and (1 - now) / slope <= {farthest}
          then (1 - now) / slope end
        from n join now using (counter) left join slopes using (counter)
        """,
        slopes=slopes,
        least=LEAST_DAYS,
        agreement=AGREEMENT,
        farthest=FARTHEST_DAYS,
    )
    same(of_spark(trend(frame).drop_columns("verdict")), expected)


def test_verdicts(spark: SparkSession) -> None:
    week = range(10)
    rising: list[float | None] = [0.5 + 0.02 * day for day in week]
    rising[4] = 5.0  # one odd day
    frame = courses(
        spark,
        [0.5 + 0.02 * day for day in range(LEAST_DAYS - 1)],
        rising,
        [0.5 + 1e-5 * day for day in week],
        [0.9 - 0.02 * day for day in week],
        [0.5 + 0.1 * day for day in week],
        [0.3 if day % 2 else 0.8 for day in week],
        [0.4] * 10,
        [None, None, 0.1],
    )
    found = {row.counter: row for row in framed(trend(frame)).collect()}
    assert [found[counter].verdict for counter in range(8)] == [
        *("not enough data", "rising", "far", "falling", "at its limit"),
        *("level", "level", "not enough data"),
    ]
    assert found[1].slope_per_day == pytest.approx(0.02)
    assert found[1].now == pytest.approx(0.68)
    assert found[1].days_left == pytest.approx(16)
    assert all(found[counter].days_left is None for counter in range(8) if counter != 1)


def test_a_day_counts_when_half_of_it_is_in_the_period(spark: SparkSession) -> None:
    begin = datetime(2026, 2, 20, 12, 1, tzinfo=UTC)
    period = Period(begin, begin + timedelta(days=2), 1000, (11_000,), 1, ("enforce",), 1, 1)
    daily = Parts.of(courses(spark, [0.1, 0.2, 0.3]).drop_columns("day"))
    expected = [("produce", 0, FIRST + timedelta(days=day), FIRST_DAY + day, 0.1 * (day + 1)) for day in (1, 2)]
    same(of_spark(days(daily, period)), in_order(list(expected)))
