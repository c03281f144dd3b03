import math
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession

from analysis.metrics import caps
from analysis.metrics.broker_moments import SUMS, moments_of
from analysis.metrics.clients import clients
from analysis.metrics.evidence import AFTER_S, BEFORE_S, evidence, victims
from analysis.metrics.moments import moments, spread
from analysis.metrics.neighbours import CANDIDATES, candidates, neighbours
from analysis.metrics.period import Period, look
from analysis.metrics.sharing import Held
from analysis.table.arrays import added
from analysis.table.parts import Parts
from analysis.table.scan import UsageRows
from tests.analysis.metrics.batch import documents as batch_documents
from tests.analysis.metrics.conftest import Both, of_spark, same
from tests.analysis.metrics.neighbour_cases import waves
from tests.analysis.records import document, framed, made, muted_of, row, usage

pytestmark = pytest.mark.spark

MOMENTS = """
with usual as (
  select cluster, broker, "user", client_id, sum(bytes_in + bytes_out) as moved,
    sum(request_time_ms) / sum(requests) as took
  from rows where "user" is not null group by all),
few as (
  select *, row_number() over (partition by cluster, broker order by moved desc, "user", client_id) as number
  from usual where moved > 0 qualify number <= {count})
select rows.cluster, rows.broker, t // 10000, few.number, sum(bytes_in + bytes_out)::bigint, sum(requests)::bigint,
  sum(produce_muted_ms + fetch_muted_ms)::bigint,
  sum(request_time_ms)::bigint, sum(round_even(1000 * rows.requests * coalesce(usual.took, 0), 0))::bigint
from rows
left join usual on (rows.cluster, rows.broker, rows.user, rows.client_id)
  = (usual.cluster, usual.broker, usual.user, usual.client_id)
left join few on (rows.cluster, rows.broker, rows.user, rows.client_id)
  = (few.cluster, few.broker, few.user, few.client_id)
group by all
"""
OF_CLIENTS = """
select cluster, broker, "user", client_id, t // 10000 as moment, sum(interval_ms) as active,
  sum({kind}_bytes) as used, sum({kind}_muted_ms) as muted
from rows where "user" is not null group by all order by all
"""


def test_sums_of_moments(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analysis.metrics.neighbours.CANDIDATES", 3)
    found = _moments(both.usage, both.period, both.clients, candidates(both.clients))
    names = ("bytes", "requests", "delay_ms", "request_time_ms", "usual_time_us")
    keys = ("cluster", "broker", "moment", "number")
    rows = added(found.whole(), keys, dict.fromkeys(names, "sum")).select([*keys, *names])
    answer = of_spark(rows.filter(pc.greater(rows["requests"], 0)))
    same(answer, [each for each in both.oracle(MOMENTS, count=3) if each[5]])


def test_what_is_usual_is_by_own_use(both: Both) -> None:
    """The same as by the definition of isotonic means, client by client."""
    found = _moments(both.usage, both.period, both.clients, candidates(both.clients))
    rows = added(found.whole(), ("broker", "moment"), {"usual_delay_us": "sum"}).to_pylist()
    expected: dict[tuple[object, object], float] = {(each["broker"], each["moment"]): 0.0 for each in rows}
    for kind in ("produce", "fetch"):
        for _, of_client in groupby(
            both.duck.execute(OF_CLIENTS.format(kind=kind)).fetchall(), key=itemgetter(0, 1, 2, 3)
        ):
            for key, usual in _usual(list(of_client)).items():
                expected[key] += 1000 * usual
    assert sum(expected.values()) > 0
    assert {(each["broker"], each["moment"]): each["usual_delay_us"] for each in rows} == pytest.approx(
        expected, abs=50
    )


def _usual(rows: list[tuple[Any, ...]]) -> dict[tuple[object, object], float]:
    """Of one client: of the moments with as much recent use the mean, the least of all above, the most of all below."""
    used = {moment: float(use) for *_, moment, _, use, _ in rows}
    before = {moment: sum(used.get(moment - back, 0) * 0.25**back for back in range(1, 16)) for moment in used}
    groups: dict[bool, dict[int, list[tuple[float, float]]]] = {True: {}, False: {}}
    place = {}
    for *_, moment, active, _, muted in rows:
        level = math.floor(8 * math.log2(max(used[moment] + before[moment], 1)))
        place[moment] = (used[moment] > 1.5 * before[moment] / 0.25, level)
        groups[place[moment][0]].setdefault(level, []).append((muted, active))
    expected = {}
    for _, broker, *_, moment, active, _, _ in rows:
        of, level = groups[place[moment][0]], place[moment][1]

        def mean(least: int, most: int, of: dict[int, list[tuple[float, float]]] = of) -> float:
            inside = [each for at in of if least <= at <= most for each in of[at]]
            return sum(muted for muted, _ in inside) / sum(active for _, active in inside)

        below, above = [at for at in of if at <= level], [at for at in of if at >= level]
        expected[broker, moment] = active * max(min(mean(least, most) for most in above) for least in below)
    for hour in {moment // 360 for moment in used}:
        had = sum(row[7] for row in rows if row[4] // 360 == hour)
        of_hour = sum(value for (_, moment), value in expected.items() if int(str(moment)) // 360 == hour)
        for key in [key for key in expected if int(str(key[1])) // 360 == hour]:
            expected[key] *= had / of_hour if of_hour else 0
    return expected


def _moments(usage: UsageRows, period: Period, sums: Parts, who: pa.Table) -> Parts:
    return moments(usage, who, sums, Held.of(who, sums, made(usage, caps.making(period.capped)).whole()), period.rows)


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
    by_moment = _moments(recorded, period, sums, who)
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


def test_a_batch_with_heartbeats_is_not_named_and_one_that_shares_a_counter_is(spark: SparkSession) -> None:
    recorded = usage(spark, batch_documents())
    period = look(recorded)
    assert period is not None
    sums = clients(recorded, period.rows)
    who = candidates(sums)
    by_moment = _moments(recorded, period, sums, who)
    named = neighbours(by_moment, who, period)
    verdicts = {each["user"]: each["verdict"] for each in named.to_pylist() if each["measure"] == "muted_ms"}
    assert (verdicts["noisy"], verdicts["alone"]) == ("coincides", "chance")
    assert {verdicts["a"], verdicts["b"]} == {"coincides", "together"}
    of_caps = made(recorded, caps.making(period.capped)).whole()
    whom = victims(muted_of(recorded, period.capped), by_moment, named, sums, of_caps, period).to_pylist()
    of_batch = {each["victim_user"]: each["shared"] for each in whom if each["user"] in "ab"}
    assert of_batch.pop("a", False) or of_batch.pop("b", False)
    assert not of_batch["alone"]
