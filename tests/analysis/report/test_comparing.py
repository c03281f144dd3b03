"""One half of the rows against the other, and DuckDB's opinion of it."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import DataFrame

from analysis.errors import AnalysisError
from analysis.metrics.comparison import SUMS, gaps_s
from analysis.metrics.talkers import CLIENT
from analysis.report import comparing
from analysis.report.comparing import Against, Span
from analysis.report.findings import Comparison
from analysis.table.parts import Parts
from analysis.table.results import Results
from analysis.table.scan import UsageRows
from tests.analysis.metrics.conftest import Both, of_spark, same

pytestmark = pytest.mark.spark

HALF = """
select cluster, "user", client_id, sum(bytes_in)::bigint as bytes_in, sum(bytes_out)::bigint as bytes_out,
  sum(requests)::bigint as requests, sum(produce_muted_ms + fetch_muted_ms)::bigint as muted_ms
from rows where "user" is not null and t >= {begin} and t < {end} group by all
"""
SUM = "coalesce(now.{0}, 0), coalesce(before.{0}, 0)"
COMPARED = """
with now as ({now}), before as ({before})
select coalesce(now.cluster, before.cluster), coalesce(now.user, before.user),
  coalesce(now.client_id, before.client_id),
  case when now.cluster is null then 'gone' when before.cluster is null then 'new' else 'both' end, {sums}
from now full join before on (now.cluster, now.user, now.client_id)
  = (before.cluster, before.user, before.client_id)
"""


@dataclass(frozen=True)
class Halves:
    now: Span
    before: Span
    found: Comparison
    tables: dict[str, DataFrame]


def within(usage: UsageRows, begin: datetime, end: datetime) -> UsageRows:
    return replace(usage, begin_us=_ms(begin) * 1000, end_us=_ms(end) * 1000)


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


@pytest.fixture(scope="module")
def halves(both: Both, tmp_path_factory: pytest.TempPathFactory) -> Halves:
    place = str(tmp_path_factory.mktemp("compared"))
    middle = both.period.begin + timedelta(seconds=200)
    now = (middle, both.period.end)
    usage = within(both.usage, *now)
    against = Against(lambda *span: within(both.usage, *span))
    other = comparing.find(against, now)
    mine = comparing.find(Against(lambda *_: usage, now), now)
    assert mine.usage is not None
    assert mine.period is not None
    made = {name: Parts.of(table) for name, table in comparing.tables_of(mine.usage, mine.period).items()}
    found = comparing.make(made, made, other, Results(usage.spark, place))
    tables = {name: both.usage.spark.read.parquet(f"{place}/{name}") for name in comparing.NAMES}
    return Halves(now, other.span, found, tables)


def test_it_is_the_period_before_of_the_same_length(halves: Halves) -> None:
    assert halves.before[1] == halves.now[0] == halves.found.end
    assert halves.before[1] - halves.before[0] == halves.now[1] - halves.now[0]
    assert halves.found.scale == 1
    assert Against(lambda *_: pytest.fail("not asked yet"), halves.now).of(halves.before) == halves.now


def test_clients_against_duckdb(halves: Halves, both: Both) -> None:
    now, before = (HALF.format(begin=_ms(begin), end=_ms(end)) for begin, end in (halves.now, halves.before))
    columns = [name + end for name in SUMS for end in ("", "_before")]
    expected = both.oracle(COMPARED, now=now, before=before, sums=", ".join(map(SUM.format, SUMS)))
    assert len(expected) >= 6
    same(of_spark(halves.tables["compared_clients"].select(*CLIENT, "seen", *columns)), expected)


def test_sums_of_both(halves: Halves, both: Both) -> None:
    for (begin, end), sums in ((halves.now, halves.found.now), (halves.before, halves.found.before)):
        [row] = both.oracle(
            "select sum(produce_muted_ms + fetch_muted_ms)::bigint, sum(bytes_in)::bigint, sum(bytes_out)::bigint, "
            "sum(requests)::bigint, sum(connections_refused)::bigint from rows where t >= {begin} and t < {end}",
            begin=_ms(begin),
            end=_ms(end),
        )
        assert row == (sums.muted_ms, sums.bytes_in, sums.bytes_out, sums.requests, sums.refused)
    assert halves.found.clients[0].bytes != halves.found.clients[0].bytes_before


def test_a_quota_that_was_made_meanwhile(halves: Halves) -> None:
    changed = {(each.kind, each.rule): each for each in halves.found.quotas}
    bob = changed["produce", "user=bob"]
    assert (bob.least_limit, bob.most_limit, bob.least_limit_before) == (50_000, 50_000, None)
    assert not {rule for _, rule in changed} & {"user=alice"}, "that one is as it was"


def test_headroom_is_of_the_instance_that_has_most(halves: Halves) -> None:
    rows = halves.tables["compared_limits"].where("rule = 'user=alice' and kind = 'produce' and broker = 1").collect()
    [alice] = rows
    assert (alice.seen, alice.limit, alice.limit_before) == ("both", 15_000, 15_000)
    assert alice.p99 > 0 < alice.p99_before
    assert len(halves.found.limits) > 0


def test_a_period_that_is_not_stored(both: Both, tmp_path: Path) -> None:
    def nothing(*_: datetime) -> UsageRows:
        raise AnalysisError("no usage records from then to now")

    span = (both.period.begin - timedelta(days=9), both.period.begin - timedelta(days=8))
    other = comparing.find(Against(nothing), span)
    assert comparing.make({}, {}, other, Results(both.usage.spark, str(tmp_path))) == Comparison(
        *other.span, stored=False
    )
    with pytest.raises(AnalysisError, match=r"^--against: no usage records from then to now$"):
        comparing.find(Against(nothing, span), span)
    with pytest.raises(AnalysisError, match=r"^--against: there are no usage records in the period$"):
        comparing.find(Against(lambda *asked: within(both.usage, *asked), span), span)


@pytest.mark.parametrize(
    ("minutes", "seconds"),
    [
        (range(10), 0),
        (range(6), 0),
        (range(5), 300),
        (range(5, 10), 300),
        ([*range(3), *range(8, 10)], 300),
        ([], 600),
        (range(-100, 100), 0),
        ([-4, 20], 600),
    ],
)
def test_gaps(minutes: list[int], seconds: int) -> None:
    """Of ten minutes, with records of these; a few minutes without are no gap."""
    begin = datetime(2026, 3, 1, tzinfo=UTC)
    first = int(begin.timestamp()) // 60
    assert gaps_s(np.array([first + each for each in minutes], dtype=int), begin, begin + timedelta(minutes=10)) == (
        seconds
    )


def test_an_interval_of_many_minutes_is_no_gap(halves: Halves) -> None:
    assert (halves.found.unrecorded_s, halves.found.unrecorded_before_s) == (0, 0), "40 s are none"
