import math
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.metrics.clients import clients
from analysis.metrics.counter_use import Readings, used
from analysis.metrics.headroom import counters, of_period
from analysis.metrics.period import look
from analysis.table.arrays import Ints
from analysis.table.schema import FILE
from quotas.entities import Default, Entity
from tests.analysis.metrics.conftest import Both, of_spark, same
from tests.analysis.records import BEGIN, BEGIN_MS, Document, document, framed, headroom_of, row, tables, usage

pytestmark = pytest.mark.spark

NAMES = ("cluster", "instance", "broker", "kind", "rule", "unit_user", "unit_client_id")
FIGURES = ("p50", "p95", "p99", "max", "over", "limit", "active", "active_p50", "active_p95", "active_p99")
ROUNDED = 0.002
"""Percentiles are right to as much (``metrics.runs``)."""
MIDNIGHT = datetime(2026, 3, 2, tzinfo=UTC)
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
      and x.c is not distinct from y.c and y.t <= x.t and y.t > x.t - x.w + 499) / (lim * w / 1000) as used,
    x.b > 0 as busy
  from of_counter x)
"""
# Idle intervals are made, not reckoned with: a row for each, with 0.
PERCENTILES = """
select cluster, instance, broker, kind, rule, u, c,
  quantile_disc(v, 0.5), quantile_disc(v, 0.95), quantile_disc(v, 0.99), max(v),
  avg((v > 1)::int)::double, arg_max(lim, t), avg(busy::int)::double,
  quantile_disc(v, 0.5) filter (busy), quantile_disc(v, 0.95) filter (busy), quantile_disc(v, 0.99) filter (busy)
from (
  select cluster, instance, broker, kind, rule, u, c, used as v, lim, t, busy from used
  union all
  select n.*, 0.0, null, null, false from (
    select cluster, instance, broker, kind, rule, u, c, greatest({intervals} - count(*), 0) as idle
    from used group by all
  ) n, lateral (select unnest(range(n.idle))) g(i))
group by all
""".replace("select n.*, 0.0", "select n.cluster, n.instance, n.broker, n.kind, n.rule, n.u, n.c, 0.0")


def test_percentiles_of_the_period(both: Both) -> None:
    found = framed(of_period(both.headroom, counters(both.clients)))
    expected = both.oracle(USED + PERCENTILES, intervals=both.period.intervals)
    assert len({row_[2:5] for row_ in expected}) > 10
    same(of_spark(found.select(*NAMES, *FIGURES)), expected, ROUNDED)


def test_percentiles_of_each_date(both: Both) -> None:
    """A day is what it would be if the period were that day, but for the window at its begin."""
    found = framed(both.headroom).join(framed(counters(both.clients)), ["kind", "counter"])
    for day, (begin, end) in {
        date(2026, 3, 1): (both.period.begin, MIDNIGHT),
        date(2026, 3, 2): (MIDNIGHT, both.period.end),
    }.items():
        intervals = round((end - begin).total_seconds())
        of_day = f", of_day as (from used where make_timestamp(t * 1000)::date = '{day}')"
        percentiles = PERCENTILES.replace("from used", "from of_day")
        expected = both.oracle(USED + of_day + percentiles, intervals=intervals)
        assert expected
        same(of_spark(found.where(F.col("date") == day).select(*NAMES, *FIGURES)), expected, ROUNDED)


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
    rows = usage(spark, [document(0, [row("u", "c", produce_rule=entity.describe(), produce_limit=1.0)])])
    [found] = framed(counters(clients(rows, 2))).collect()
    assert (found.unit_user, found.unit_client_id) == ("u" if of_user else None, "c" if of_client_id else None)


@pytest.mark.parametrize("interval_s", [1, 5, 10, 30])
def test_steady_use_of_all_that_is_allowed_is_1_whatever_the_interval(interval_s: int) -> None:
    documents = [
        document(
            seq,
            [row(produce_rule="user=alice", produce_limit=1000.0, produce_bytes=1000 * interval_s)],
            second=seq * interval_s + (seq % 3) / 100,
            interval_ms=1000 * interval_s,
        )
        for seq in range(60)
    ]
    rows = pa.concat_tables(_rows_of_counters(documents))
    used = Readings.of(rows, intervals_of(1000 * interval_s)).used
    assert max(used) == pytest.approx(1.0)
    assert sum(value == pytest.approx(1.0) for value in used) >= 50


def test_partitions_are_held_against_the_bucket_s_own_window() -> None:
    once = row(mutation_partitions=30, mutation_rule="user=alice", mutation_limit=1.0)
    rest = row(mutation_rule="user=alice", mutation_limit=1.0)
    documents = [
        document(seq, [rest if seq else once], controller_samples=61, controller_sample_ms=1000) for seq in range(60)
    ]
    used = Readings.of(pa.concat_tables(_rows_of_counters(documents)), intervals_of(1000)).used
    assert used == pytest.approx([30 / 61] * 60), "for a minute, and not for 11 s"


def test_attempts_of_an_address_are_held_against_its_connection_rate() -> None:
    came = {"connection_attempts": 10, "connection_rule": "ip=<default>", "connection_limit": 5.0}
    at = [row(None, None, broker=-1, ip=ip, listener=on, **came) for ip in ("10.0.0.1", "other") for on in ("A", "B")]
    used = Readings.of(
        pa.concat_tables(_rows_of_counters([document(seq, at) for seq in range(20)])), intervals_of(1000)
    )
    assert len(set(used.counter.tolist())) == 1, "of both listeners together; of others nobody knows who is who"
    assert max(used.used) == pytest.approx(4.0)


def test_idle_intervals_count_as_nothing(spark: SparkSession) -> None:
    busy = row(produce_rule="user=alice", produce_limit=1.0, produce_bytes=11)
    marks = row("bob", fetch_bytes=1)
    rows = usage(spark, [document(seq, [busy] if seq < 40 else [marks]) for seq in range(100)])
    period = look(rows)
    assert period is not None
    found, of_day = framed(headroom_of(rows, period)).orderBy(F.col("date").isNotNull()).collect()
    assert found.p50 == 0
    assert found.p95 == found.p99 == found.max == 11
    assert math.isclose(found.over, 0.39)  # in the first interval it was just 1
    assert (found.active, found.active_p50, found.active_p99) == (0.4, 11, 11)
    assert (found.date, of_day.date) == (None, BEGIN.date())
    assert of_day.p99 == 11


def test_a_rule_that_nobody_knows_has_one_counter(spark: SparkSession) -> None:
    strange: dict[str, Any] = {"produce_rule": "tenant=blue", "produce_limit": 1.0}
    rows = usage(spark, [document(0, [row("alice", **strange), row("bob", **strange)])])
    [found] = framed(counters(clients(rows, 2))).collect()
    assert (found.rule, found.unit_user, found.unit_client_id) == ("tenant=blue", None, None)


def test_no_quotas(spark: SparkSession) -> None:
    rows = usage(spark, [document(0, [row("alice", produce_bytes=1)])])
    period = look(rows)
    assert period is not None
    assert len(headroom_of(rows, period)) == 0


def _rows_of_counters(documents: list[Document]) -> list[pa.Table]:
    return list(used(iter(tables(FILE.names, documents)), ()))


def intervals_of(interval_ms: int) -> Callable[[Ints], Ints]:
    return lambda time_ms: np.full_like(time_ms, interval_ms)


def test_the_hour_before_the_period_is_known(spark: SparkSession) -> None:
    """A burst that began before the period is in the first windows, and not in its figures otherwise."""
    documents = [
        document(seq, [row(produce_rule="user=alice", produce_limit=1.0, produce_bytes=110 if seq < 10 else 11)])
        for seq in range(60)
    ]
    everything = usage(spark, documents)
    later = replace(everything, begin_us=(BEGIN_MS + 10_000) * 1000, around=lambda: everything)
    period = look(later)
    assert period is not None
    whole, of_day = framed(headroom_of(later, period)).orderBy(F.col("date").isNotNull()).collect()
    assert whole.max == of_day.max == pytest.approx((10 * 110 + 11) / 11)
    assert whole.p50 == 11
    alone = framed(headroom_of(replace(later, around=None), period)).where("date is null").collect()
    assert alone == [whole], "its files have them in any case"


def test_an_interval_that_was_changed_is_that_of_its_date(spark: SparkSession) -> None:
    """With the interval of most rows, 30 s on the second date would be held against a window of 11 s."""
    limited: dict[str, Any] = {"produce_rule": "user=alice", "produce_limit": 1.0}
    noon = 12 * 3600
    first = [document(seq, [row(produce_bytes=1, **limited)]) for seq in range(200)]
    second = [
        document(200 + seq, [row(produce_bytes=30, **limited)], second=noon + 30 * seq, interval_ms=30_000)
        for seq in range(20)
    ]
    rows = usage(spark, first, second)
    period = look(rows)
    assert period is not None
    assert period.interval_ms == 1000
    assert period.intervals == noon + 20
    found = {each.date: each for each in framed(headroom_of(rows, period)).where("date is not null").collect()}
    assert [each.max for each in found.values()] == pytest.approx([1.0, 1.0])
    assert found[MIDNIGHT.date()].active == 1.0
