import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.metrics.episodes import WHO, episodes
from tests.analysis.metrics.conftest import Both, of_spark, same
from tests.analysis.records import BEGIN_MS, document, framed, muted_of, row, usage

pytestmark = pytest.mark.spark

ORACLE = """
with muted as (
  select cluster, broker, "user", client_id, 'produce' as kind, produce_rule as rule, mode, instance, t as b,
    t + interval_ms as e, produce_muted_ms as m, produce_throttled as n, produce_throttle_ms as th,
    produce_bytes as bytes, produce_limit as lim from rows where produce_muted_ms > 0
  union all
  select cluster, broker, "user", client_id, 'fetch', fetch_rule, mode, instance, t,
    t + interval_ms, fetch_muted_ms, fetch_throttled, fetch_throttle_ms, fetch_bytes, fetch_limit
    from rows where fetch_muted_ms > 0),
-- Another way than running numbers: a row begins an episode when no row reaches up to it, and belongs to the last such.
begins as (
  select distinct cluster, broker, "user", client_id, kind, rule, mode, b from muted x where not exists (
    select 1 from muted y where (x.cluster, x.broker, x.user, x.client_id, x.kind, x.mode)
      = (y.cluster, y.broker, y.user, y.client_id, y.kind, y.mode) and x.rule is not distinct from y.rule
      and y.b < x.b and y.e + {gap} >= x.b)),
belongs as (
  select muted.*, (select max(g.b) from begins g where (g.cluster, g.broker, g.user, g.client_id, g.kind, g.mode)
      = (muted.cluster, muted.broker, muted.user, muted.client_id, muted.kind, muted.mode)
      and g.rule is not distinct from muted.rule and g.b <= muted.b) as first from muted)
select cluster, broker, "user", client_id, kind, rule, mode, min(b), max(e), sum(m)::bigint, sum(n)::bigint,
  sum(th)::bigint, sum(bytes)::bigint, min(lim), count(distinct instance) from belongs
group by cluster, broker, "user", client_id, kind, rule, mode, first
"""


@pytest.mark.parametrize("gap_ms", [0, 999, 11_000])
def test_episodes(both: Both, gap_ms: int) -> None:
    found = framed(episodes(both.muted.whole(), gap_ms)).withColumns(
        {name: F.unix_millis(name) for name in ("begin", "end")}
    )
    expected = both.oracle(ORACLE, gap=gap_ms)
    assert expected
    same(of_spark(found), expected)


def test_all_that_was_muted_is_in_an_episode(both: Both) -> None:
    [found] = of_spark(framed(episodes(both.muted.whole(), 11_000)).agg(F.sum("muted_ms"), F.sum("throttled")))
    assert [found] == both.oracle(
        "select sum(produce_muted_ms + fetch_muted_ms)::bigint, "
        "sum(produce_throttled + fetch_throttled)::bigint from rows"
    )


def test_a_gap_of_just_the_window_is_joined(spark: SparkSession) -> None:
    held = [row(produce_muted_ms=1, produce_rule="user=alice", produce_limit=1.0)]
    documents = [document(seq, held, second=second) for seq, second in enumerate((0, 12, 24.001, 24.002))]
    found = framed(episodes(muted_of(usage(spark, documents)).whole(), gap_ms=11_000)).select(
        *(F.unix_millis(name) - BEGIN_MS for name in ("begin", "end")), "muted_ms"
    )
    assert of_spark(found) == [(0, 13_000, 2), (24_001, 25_002, 2)]


def test_nobody_was_throttled(spark: SparkSession) -> None:
    assert len(episodes(muted_of(usage(spark, [document(0, [row()])])).whole(), 11_000)) == 0


def test_an_episode_has_one_of_each() -> None:
    assert {"user", "client_id", "kind", "broker", "rule"} <= set(WHO)
