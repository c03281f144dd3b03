import pytest
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.metrics.steps import CLIENT, SUMS
from analysis.schema import COLUMNS
from tests.analysis.metrics.conftest import Both, of_spark, same

pytestmark = pytest.mark.spark


def test_sums_of_each_client_and_step(both: Both) -> None:
    step_s = both.period.step_s
    sums = ", ".join(f"sum({name})::bigint" for name in SUMS)
    names = ", ".join(f'"{name}"' for name in CLIENT)
    expected = both.oracle(
        "select {names}, t // 1000 // {step_s} * {step_s}, {sums} from rows group by all",
        names=names,
        step_s=step_s,
        sums=sums,
    )
    same(of_spark(both.steps.withColumn("step", F.unix_seconds("step"))), expected)


def test_not_a_byte_is_lost(both: Both) -> None:
    [found] = of_spark(both.steps.agg(*(F.sum(name) for name in SUMS)))
    assert [found] == both.oracle("select {sums} from rows", sums=", ".join(f"sum({name})::bigint" for name in SUMS))


def test_everything_that_adds_up_is_summed() -> None:
    stocks = {"connections", "produce_requests", "fetch_requests"}  # a state; and what requests has already
    counts = {column.name for column in COLUMNS if column.missing == 0 and column.least == 0}
    assert counts - stocks == set(SUMS)
