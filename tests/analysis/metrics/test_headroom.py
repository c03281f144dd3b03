import math
from datetime import UTC, date, datetime

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.metrics.headroom import BINS_PER_OCTAVE, counters, headroom, histogram, intervals_of_date, use
from analysis.metrics.period import Period, look
from quotas.entities import Default, Entity
from tests.analysis.metrics.conftest import Answer, Both, in_order, of_spark, same
from tests.analysis.records import document, row, usage_frame

pytestmark = pytest.mark.spark

NAMES = ("cluster", "instance", "broker", "kind", "rule", "unit_user", "unit_client_id")
# Who shares a counter is written down here by hand: the rule is not parsed.
USED = """
with of_kind as (
  select *, 'produce' as kind, produce_rule as rule, produce_limit as lim, produce_bytes as b from rows
  union all select *, 'fetch', fetch_rule, fetch_limit, fetch_bytes from rows),
of_counter as (
  select cluster, instance, broker, kind, rule,
    case when rule in ('user=alice', 'user=bob', 'user=''eve, client-id=x''', 'user="o''hara", client-id=<default>',
      'user=<default>, client-id=<default>') then "user" end as u,
    case when rule in ('client-id=app', 'user="o''hara", client-id=<default>', 'user=<default>, client-id=<default>')
      then client_id end as c,
    t, samples * sample_ms as w, sum(b) as b, max(lim) as lim
  from of_kind where rule is not null group by all),
used as (
  select x.*, (select sum(y.b) from of_counter y where (x.cluster, x.instance, x.broker, x.kind, x.rule)
      = (y.cluster, y.instance, y.broker, y.kind, y.rule) and x.u is not distinct from y.u
      and x.c is not distinct from y.c and y.t <= x.t and y.t > x.t - x.w + 499) / (lim * w / 1000) as used
  from of_counter x)
"""
# Idle intervals are made, not reckoned with: a row for each, with 0.
PERCENTILES = """
select cluster, instance, broker, kind, rule, u, c,
  quantile_disc(v, 0.5), quantile_disc(v, 0.95), quantile_disc(v, 0.99), max(v),
  avg((v > 1)::int)::double, arg_max(lim, t)
from (
  select cluster, instance, broker, kind, rule, u, c, used as v, lim, t from used
  union all
  select n.*, 0.0, null, null from (
    select cluster, instance, broker, kind, rule, u, c, greatest({intervals} - count(*), 0) as idle
    from used group by all
  ) n, lateral (select unnest(range(n.idle))) g(i))
group by all
""".replace("select n.*, 0.0", "select n.cluster, n.instance, n.broker, n.kind, n.rule, n.u, n.c, 0.0")


def test_every_use(both: Both) -> None:
    named = both.used.join(counters(both.steps), ["kind", "counter"])
    found = named.select(*NAMES, "time_ms", "limit", "used")
    same(
        of_spark(found),
        both.oracle(
            "{used} select {who}, t, lim, used from used", used=USED, who="cluster, instance, broker, kind, rule, u, c"
        ),
    )


def test_exact_percentiles(both: Both) -> None:
    values = histogram(both.used, exact=True)
    found = headroom(values, F.lit(both.period.intervals)).join(counters(both.steps), ["kind", "counter"])
    expected = both.oracle(USED + PERCENTILES, intervals=both.period.intervals)
    same(of_spark(found.select(*NAMES, "p50", "p95", "p99", "max", "over", "limit")), expected)


def test_percentiles_of_bins_are_right_within_half_a_bin(both: Both) -> None:
    everything = F.lit(both.period.intervals)
    exact = {tuple(row[:2]): row for row in headroom(histogram(both.used, exact=True), everything).collect()}
    found = headroom(histogram(both.used), everything).collect()
    assert len(found) == len(exact) > 0
    for row_ in found:
        other = exact[tuple(row_[:2])]
        for name in ("p50", "p95", "p99"):
            assert row_[name] == pytest.approx(other[name], rel=2 ** (0.5 / BINS_PER_OCTAVE) - 1 + 1e-9, abs=1e-3), name
        for name in ("max", "over", "limit"):
            assert row_[name] == other[name]


def test_by_date(both: Both) -> None:
    """What a counter is on a day is what it would be if the period were that day, but for the window at its begin."""
    found = headroom(histogram(both.used, exact=True), intervals_of_date(both.period), "date").select(
        "counter", "kind", "date", "max", "p99"
    )
    expected = _of_dates(both.used, both.period)
    assert {row[2] for row in expected} == {date(2026, 3, 1), date(2026, 3, 2)}
    same(of_spark(found), expected)


def _of_dates(used: DataFrame, period: Period) -> Answer:
    values: dict[tuple[object, ...], list[float]] = {}
    for each in used.collect():
        values.setdefault((each.counter, each.kind, each.date), []).append(each.used)
    midnight = datetime(2026, 3, 2, tzinfo=UTC)
    seconds = {date(2026, 3, 1): midnight - period.begin, date(2026, 3, 2): period.end - midnight}
    return in_order(
        [
            (*key, max(found), _least_not_exceeded(found, 0.99, round(seconds[key[2]].total_seconds())))  # type: ignore[index]  # it is a date
            for key, found in values.items()
        ]
    )


def _least_not_exceeded(values: list[float], share: float, intervals: int) -> float:
    everything = sorted([*values, *[0.0] * (intervals - len(values))])
    return everything[math.ceil(share * len(everything)) - 1]


@pytest.mark.parametrize(
    ("entity", "of_user", "of_client_id"),
    [
        (Entity(user="alice"), True, False),
        (Entity(client_id="app"), False, True),
        (Entity(user=Default.DEFAULT), True, False),
        (Entity(user=Default.DEFAULT, client_id=Default.DEFAULT), True, True),
        (Entity(user="a, client-id=b"), True, False),
        (Entity(user="a', client-id=b"), True, False),
        (Entity(user="a'\", client-id=b"), True, False),
        (Entity(user="a\\', client-id=b", client_id="c"), True, True),
        (Entity(client_id="user=alice"), False, True),
    ],
)
def test_who_shares_a_counter(spark: SparkSession, entity: Entity, of_user: bool, of_client_id: bool) -> None:
    rows = usage_frame(spark, [document(0, [row("u", "c", produce_rule=entity.describe(), produce_limit=1.0)])])
    [found] = counters(rows).collect()
    assert (found.unit_user, found.unit_client_id) == ("u" if of_user else None, "c" if of_client_id else None)


@pytest.mark.parametrize("interval_s", [1, 5, 10, 30])
def test_steady_use_of_all_that_is_allowed_is_1_whatever_the_interval(spark: SparkSession, interval_s: int) -> None:
    documents = [
        document(
            seq,
            [row(produce_rule="user=alice", produce_limit=1000.0, produce_bytes=1000 * interval_s)],
            second=seq * interval_s + (seq % 3) / 100,
            interval_ms=1000 * interval_s,
        )
        for seq in range(60)
    ]
    rows = usage_frame(spark, documents)
    period = look(rows)
    assert period is not None
    used = [row_.used for row_ in use(rows, period).collect()]
    assert max(used) == pytest.approx(1.0)
    assert sum(value == pytest.approx(1.0) for value in used) >= 50


def test_idle_intervals_count_as_nothing(spark: SparkSession) -> None:
    busy = row(produce_rule="user=alice", produce_limit=1.0, produce_bytes=11)
    marks = row("bob", fetch_bytes=1)
    documents = [document(seq, [busy] if seq < 40 else [marks]) for seq in range(100)]
    rows = usage_frame(spark, documents)
    period = look(rows)
    assert period is not None
    [found] = headroom(histogram(use(rows, period)), F.lit(period.intervals)).collect()
    assert found.p50 == 0
    assert found.p95 == found.p99 == pytest.approx(found.max, rel=0.03)
    assert found.max == 11
    assert math.isclose(found.over, 0.39)  # in the first interval it was just 1
