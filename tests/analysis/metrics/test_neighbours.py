from datetime import timedelta

import pytest
from pyspark.sql import SparkSession

from analysis.metrics.clients import clients
from analysis.metrics.muted import muted
from analysis.metrics.neighbours import CANDIDATES, candidates, moments, moments_of, neighbours, victims
from analysis.metrics.period import Period, look
from tests.analysis.metrics.conftest import Both, of_spark, same
from tests.analysis.records import document, row, usage

pytestmark = pytest.mark.spark

# By correlated subqueries and sets of moments, without windows and without candidates' numbers.
PEAKS = """
with m as (
  select cluster, broker, "user", client_id, t // 10000 as moment, sum(bytes_in + bytes_out) as b,
    sum(produce_muted_ms + fetch_muted_ms) as d, sum(requests) as r, sum(request_time_ms) as rt from rows group by all),
whole as (select cluster, broker, moment, sum(b) as b, sum(d) as d, sum(r) as r, sum(rt) as rt from m group by all),
mine as (select cluster, broker, "user", client_id, sum(b) as b, sum(d) as d, sum(r) as r, sum(rt) as rt from m
  where "user" is not null group by all having sum(b) > 0),
peak as (
  select m.*, whole.d as all_d, whole.r as all_r, whole.rt as all_rt from m join whole using (cluster, broker, moment)
  join mine on (m.cluster, m.broker, m.user, m.client_id) = (mine.cluster, mine.broker, mine.user, mine.client_id)
  where m.b > 0 and m.b >= 2 * mine.b / {moments} and m.b >= 0.1 * whole.b)
"""
NEIGHBOURS = """
select p.* from (
  select cluster, broker, "user", client_id, share - expected, share, expected, peaks, hit::bigint, others::bigint,
    mb / wb, inside, (wrt - mrt - rt_in) / (wr - mr - r_in) from (
    select i.*, hit / others as share, peaks / {moments} as expected, rt_in / r_in as inside from (
      select mine.cluster, mine.broker, mine.user, mine.client_id, count(*) as peaks, sum(peak.all_d - peak.d) as hit,
        sum(peak.all_r - peak.r) as r_in, sum(peak.all_rt - peak.rt) as rt_in,
        any_value(mine.b) as mb, any_value(mine.r) as mr, any_value(mine.rt) as mrt,
        (select sum(b) from whole w where w.broker = mine.broker) as wb,
        (select sum(r) from whole w where w.broker = mine.broker) as wr,
        (select sum(rt) from whole w where w.broker = mine.broker) as wrt,
        (select sum(d) from whole w where w.broker = mine.broker) - any_value(mine.d) as others
      from mine join peak on (mine.cluster, mine.broker, mine.user, mine.client_id)
        = (peak.cluster, peak.broker, peak.user, peak.client_id)
      group by mine.cluster, mine.broker, mine.user, mine.client_id) i) j where others > 0) p
"""
VICTIMS = """
select peak.cluster, peak.broker, peak.user, peak.client_id, m.user, m.client_id, sum(m.d)::bigint
from peak join m using (cluster, broker, moment)
where m.d > 0 and (peak.user, peak.client_id) <> (m.user, m.client_id) group by all
"""


def test_who_peaks_when_others_are_delayed(both: Both) -> None:
    who = candidates(both.clients)
    found = neighbours(moments(both.usage, who), who, both.period)
    count = moments_of(both.period)
    expected = both.oracle("{peaks} {query}", peaks=PEAKS.format(moments=count), query=NEIGHBOURS.format(moments=count))
    assert expected
    same(of_spark(found), expected)


def test_who_was_delayed_then(both: Both) -> None:
    who = candidates(both.clients)
    found = victims(both.muted, moments(both.usage, who), who, both.period)
    expected = both.oracle("{peaks} {query}", peaks=PEAKS.format(moments=moments_of(both.period)), query=VICTIMS)
    assert expected
    same(of_spark(found), expected)


def test_one_that_bursts_while_another_is_muted(spark: SparkSession) -> None:
    """A loud one for 10 of 100 s, in which another is muted; and one that is as loud all the time."""
    rows = []
    for second in range(100):
        bursts = 50 <= second < 60
        rows.append(
            document(
                second,
                [
                    row("loud", bytes_in=10_000 if bursts else 10, requests=1),
                    row("steady", bytes_in=5_000, requests=1, request_time_ms=50 if bursts else 5),
                    row("quiet", bytes_in=10, produce_muted_ms=900 if bursts else 0),
                ],
            )
        )
    recorded = usage(spark, rows)
    period = look(recorded)
    assert period is not None
    who = candidates(clients(recorded, period.rows))
    [found] = neighbours(moments(recorded, who), who, period).where("score > 0").collect()
    assert (found.user, found.peaks, found.coincidence, found.others_delay_in_peaks_ms) == ("loud", 1, 1.0, 9000)
    assert found.expected == pytest.approx(1 / moments_of(period))
    assert (found.others_request_ms_in_peaks, found.others_request_ms_elsewhere) == (50, 5)
    [victim] = victims(muted(recorded), moments(recorded, who), who, period).where("user = 'loud'").collect()
    assert (victim.victim_user, victim.delay_ms) == ("quiet", 9000)


def test_only_those_that_move_most_are_looked_at(spark: SparkSession) -> None:
    many = [row(f"user-{number:02d}", bytes_in=number) for number in range(CANDIDATES + 5)]
    found = candidates(clients(usage(spark, [document(0, many)]), len(many))).orderBy("number").collect()
    assert [each.user for each in found] == [f"user-{number:02d}" for number in range(CANDIDATES + 4, 4, -1)]


@pytest.mark.parametrize(
    ("begin_s", "seconds", "count"), [(0, 10, 1), (5, 10, 2), (9.9, 0.2, 2), (0, 100, 10), (0, 0.5, 1)]
)
def test_moments_that_are_touched(begin_s: float, seconds: float, count: int, both: Both) -> None:
    hour = both.period.begin.replace(minute=0, second=0, microsecond=0)
    begin = hour + timedelta(seconds=begin_s)
    period = Period(begin, begin + timedelta(seconds=seconds), 1000, (11_000,), 1, ("enforce",), 1, 1)
    assert moments_of(period) == count
