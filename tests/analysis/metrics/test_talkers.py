import pytest
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.metrics.steps import SUMS
from analysis.metrics.talkers import CLIENT, over_time, talkers
from tests.analysis.metrics.conftest import Both, of_spark, same

pytestmark = pytest.mark.spark


def test_sums_of_clients(both: Both) -> None:
    sums = ", ".join(f"sum({name})::bigint" for name in SUMS)
    same(
        of_spark(talkers(both.steps)),
        both.oracle('select cluster, "user", client_id, {s} from rows group by all', s=sums),
    )


def test_a_few_over_time_and_all_others_as_one(both: Both) -> None:
    chosen = talkers(both.steps).where(F.col("user").isin("alice", "dave")).select(*CLIENT, F.lit(True).alias("named"))
    found = over_time(both.steps, chosen).withColumn("step", F.unix_seconds("step"))
    expected = both.oracle(
        "select t // 1000 // {step_s} * {step_s}, coalesce({named}, false), case when {named} then cluster end, "
        'case when {named} then "user" end, case when {named} then client_id end, '
        "sum(bytes_in)::bigint, sum(bytes_out)::bigint from rows group by all",
        step_s=both.period.step_s,
        named="\"user\" in ('alice', 'dave')",
    )
    same(of_spark(found), expected)
