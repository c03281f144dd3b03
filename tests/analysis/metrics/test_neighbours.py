from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from analysis.metrics import caps
from analysis.metrics.broker_moments import SUMS, moments_of
from analysis.metrics.clients import clients
from analysis.metrics.evidence import AFTER_S, BEFORE_S, evidence, victims
from analysis.metrics.moments import moments, spread
from analysis.metrics.neighbours import CANDIDATES, candidates, neighbours
from analysis.metrics.period import Period, look
from tests.analysis.metrics.conftest import Both, of_spark, same
from tests.analysis.metrics.neighbour_cases import waves
from tests.analysis.records import document, framed, made, muted_of, row, usage

pytestmark = pytest.mark.spark

# Each row's share of what is usual of its client, by correlated subqueries.
MOMENTS = """
with usual as (
  select cluster, broker, "user", client_id, sum(bytes_in + bytes_out) as moved,
    sum(produce_muted_ms + fetch_muted_ms) / sum(interval_ms) as muted, sum(request_time_ms) / sum(requests) as took
  from rows where "user" is not null group by all),
few as (
  select *, row_number() over (partition by cluster, broker order by moved desc, "user", client_id) as number
  from usual where moved > 0 qualify number <= {count})
select rows.cluster, rows.broker, t // 10000, few.number, sum(bytes_in + bytes_out)::bigint, sum(requests)::bigint,
  sum(produce_muted_ms + fetch_muted_ms)::bigint,
  sum(round_even(1000 * rows.interval_ms * coalesce(usual.muted, 0), 0))::bigint,
  sum(request_time_ms)::bigint, sum(round_even(1000 * rows.requests * coalesce(usual.took, 0), 0))::bigint
from rows
left join usual on (rows.cluster, rows.broker, rows.user, rows.client_id)
  = (usual.cluster, usual.broker, usual.user, usual.client_id)
left join few on (rows.cluster, rows.broker, rows.user, rows.client_id)
  = (few.cluster, few.broker, few.user, few.client_id)
group by all
"""


def test_sums_of_moments(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analysis.metrics.neighbours.CANDIDATES", 3)
    found = moments(both.usage, candidates(both.clients), both.clients, both.period.rows)
    names = ("bytes", "requests", "delay_ms", "usual_delay_us", "request_time_ms", "usual_time_us")
    answer = of_spark(found.whole(["cluster", "broker", "moment", "number", *names]))
    same(answer, both.oracle(MOMENTS, count=3))


def test_an_interval_of_a_minute_is_spread_over_its_moments() -> None:
    sums = {name: [7, 60, 0] for name in SUMS}
    table = pa.table(
        {"cluster": ["c"] * 3, "broker": [1, 1, 2], "number": [3, None, 3], "moment": [10, 20, 30], "span": [3, 6, 1]}
        | sums
    )
    found = spread(table).to_pylist()
    assert [(each["broker"], each["number"], each["moment"], each["bytes"]) for each in found] == [
        *((1, 3, 10, 3), (1, 3, 11, 2), (1, 3, 12, 2)),
        *((1, None, moment, 10) for moment in range(20, 26)),
        (2, 3, 30, 0),
    ]
    assert all(sum(each[name] for each in found) == 67 for name in SUMS)


@dataclass(frozen=True)
class Found:
    neighbours: DataFrame
    victims: DataFrame
    evidence: DataFrame
    period: Period


SECONDS = 2 * 3600
CAP = "cap user-group=tenants"


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> Found:
    """Two hours of bursts that hold others, one by a cap that they share, and make the broker slow; and a bystander."""
    chance = np.random.default_rng(11)
    count = SECONDS // 10
    guilty, innocent = (waves(chance, count, 30, 3) for _ in range(2))
    late = np.roll(guilty, 1)
    documents = []
    for moment in range(count):
        hit, slow = late[moment], guilty[moment]
        cap = {"produce_caps": CAP, "produce_cap_limits": "1000"}
        rows = [
            row("steady", bytes_in=50_000, requests=20, request_time_ms=20 * (30 if slow else 5)),
            row("tenant-1", bytes_in=900, produce_muted_ms=7000 if hit else int(chance.integers(0, 200)), **cap),
            row("alone", bytes_in=900, produce_muted_ms=4000 if hit else 0, produce_rule="user=alone"),
        ]
        rows += [row(name, bytes_in=400_000, requests=1, **cap) for name in ("culprit", "twin") if guilty[moment]]
        rows += [row("innocent", bytes_in=500_000)] if innocent[moment] else []
        documents.append(document(moment, rows, second=10 * moment, interval_ms=10_000))
    recorded = usage(spark, documents)
    period = look(recorded)
    assert period is not None
    sums = clients(recorded, period.rows)
    who = candidates(sums)
    by_moment = moments(recorded, who, sums, period.rows)
    named = neighbours(by_moment, who, period)
    of_caps = made(recorded, caps.making(period.capped)).whole()
    whom = victims(muted_of(recorded, period.capped), by_moment, named, sums, of_caps, period)
    return Found(framed(named), framed(whom), framed(evidence(by_moment, named, period)), period)


def test_the_one_that_does_it_is_named(found: Found) -> None:
    verdicts = {(each.user, each.measure): each for each in found.neighbours.collect()}
    loud = verdicts["culprit", "muted_ms"]
    assert (loud.verdict, loud.lag_s, loud.behind_user) == ("coincides", 10, None)
    assert 0 < loud.p <= loud.p_adjusted <= 0.05
    assert loud.score == pytest.approx(loud.coincidence - loud.expected)
    assert loud.low < loud.score < loud.high
    assert loud.others_in_peaks_ms / loud.others_ms == pytest.approx(loud.coincidence, abs=1e-6)
    assert {
        verdicts[name, measure].verdict for name in ("innocent",) for measure in ("muted_ms", "request_time_ms")
    } == {"chance"}
    assert ("steady", "muted_ms") not in verdicts, "it never peaks"


def test_the_broker_that_becomes_slow_is_told_by_what_requests_take(found: Found) -> None:
    [slow] = found.neighbours.where("user = 'culprit' and measure = 'request_time_ms'").collect()
    assert (slow.verdict, slow.lag_s) == ("coincides", 0)
    # Those of the twin are in it too: one for 20 of 30 ms.
    assert slow.others_in_peaks_ms / slow.others_requests_in_peaks == pytest.approx(20 * 30 / 21)
    assert slow.others_expected_ms < slow.others_in_peaks_ms / 2


def test_two_that_always_peak_together_are_told_as_one(found: Found) -> None:
    twins = found.neighbours.where("user = 'twin'").collect()
    assert {(each.verdict, each.behind_user, each.behind_client_id) for each in twins} == {
        ("together", "culprit", "app")
    }


def test_whom_it_delayed_and_who_shares_a_limit_with_it(found: Found) -> None:
    [bursts] = {each.peaks for each in found.neighbours.where("user = 'culprit'").collect()}
    whom = {each.victim_user: each for each in found.victims.collect()}
    assert whom.keys() == {"tenant-1", "alone"}
    assert {name: each.shared for name, each in whom.items()} == {"tenant-1": True, "alone": False}
    assert whom["alone"].delay_ms == pytest.approx(4000 * bursts, abs=4000), "but for one at the end"
    assert {each.user for each in whom.values()} == {"culprit"}


def test_what_happens_around_a_burst(found: Found) -> None:
    around = found.evidence.where("user = 'culprit' and measure = 'muted_ms'").orderBy("offset_s").collect()
    assert [each.offset_s for each in around] == list(range(-BEFORE_S, AFTER_S, 10))
    at = {each.offset_s: each for each in around}
    [known] = found.neighbours.where("user = 'culprit' and measure = 'muted_ms'").collect()
    assert 0 < max(each.bursts for each in around) <= known.bursts
    assert at[-10].bytes_per_s == 0 < at[0].bytes_per_s == 40_000
    assert at[0].others_ms < at[10].others_ms == pytest.approx(1100)
    assert at[10].expected_ms < 600
    assert {each.user for each in found.evidence.collect()} == {"culprit"}


def test_only_those_that_move_most_are_looked_at(spark: SparkSession) -> None:
    many = [row(f"user-{number:02d}", bytes_in=number) for number in range(CANDIDATES + 5)]
    found = candidates(clients(usage(spark, [document(0, many)]), len(many))).sort_by("number")
    assert found["user"].to_pylist() == [f"user-{number:02d}" for number in range(CANDIDATES + 4, 4, -1)]


@pytest.mark.parametrize(
    ("begin_s", "seconds", "count"), [(0, 10, 1), (5, 10, 2), (9.9, 0.2, 2), (0, 100, 10), (0, 0.5, 1)]
)
def test_moments_that_are_touched(begin_s: float, seconds: float, count: int, both: Both) -> None:
    hour = both.period.begin.replace(minute=0, second=0, microsecond=0)
    begin = hour + timedelta(seconds=begin_s)
    period = Period(begin, begin + timedelta(seconds=seconds), 1000, (11_000,), 1, ("enforce",), 1, 1)
    assert moments_of(period) == count
