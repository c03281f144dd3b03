import pytest
from pyspark.sql import SparkSession

from analysis.metrics.clients import SUMS, clients
from analysis.metrics.talkers import CLIENT, OTHERS, over_time, talkers, top
from tests.analysis.metrics.conftest import Both, of_spark, same
from tests.analysis.records import document, row, usage

pytestmark = pytest.mark.spark

MOVED = """
with sums as (
  select cluster, "user", client_id, sum(bytes_in + bytes_out) as moved
  from rows where "user" is not null group by all),
named as (select *, row_number() over (order by moved desc) - 1 as place from sums qualify place < {count})
select coalesce(place, -1), t // 1000 // {step_s} * {step_s}, sum(bytes_in)::bigint, sum(bytes_out)::bigint,
  named.cluster, named.user, named.client_id
from rows left join named on (rows.cluster, rows.user, rows.client_id) = (named.cluster, named.user, named.client_id)
group by all
"""


def test_sums_of_clients(both: Both) -> None:
    sums = ", ".join(f"sum({name})::bigint" for name in SUMS)
    same(
        of_spark(talkers(both.clients)),
        both.oracle('select cluster, "user", client_id, {s} from rows group by all', s=sums),
    )


@pytest.mark.parametrize("count", [1, 3, 100])
def test_a_few_over_time_and_all_others_as_one(both: Both, count: int) -> None:
    step_s = both.period.step_s
    found = over_time(both.usage, talkers(both.clients), count, step_s)
    same(
        of_spark(found.select(["place", "step_s", "bytes_in", "bytes_out", *CLIENT])),
        both.oracle(MOVED, count=count, step_s=step_s),
    )


def test_who_moves_nothing_is_no_talker(spark: SparkSession) -> None:
    recorded = usage(spark, [document(0, [row("alice"), row(None, None, connections_refused=1)])])
    found = talkers(clients(recorded, 2))
    assert len(top(found, 5)) == 0
    assert over_time(recorded, found, 5, 60)["place"].to_pylist() == [OTHERS]
