import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.metrics import addresses
from analysis.metrics.clients import CLIENT, SUMS, clients
from analysis.table.schema import COLUMNS
from quotas.kinds import METERED
from tests.analysis.metrics.conftest import Answer, Both, of_spark, same
from tests.analysis.records import framed, usage

pytestmark = pytest.mark.spark


def test_sums_of_each_client_and_day(both: Both) -> None:
    same(of_spark(framed(both.clients).select(*CLIENT, "date", *SUMS)), _expected(both))


def test_sums_of_a_client_meet_in_one_of_several_tasks(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analysis.table.reading.tasks_for", lambda *_: 3)
    same(of_spark(framed(clients(both.usage, both.period.rows)).select(*CLIENT, "date", *SUMS)), _expected(both))


def _expected(both: Both) -> Answer:
    sums = ", ".join(f"sum({name})::bigint" for name in SUMS)
    names = ", ".join(f'"{name}"' for name in CLIENT)
    return both.oracle("select {names}, time::date, {sums} from rows group by all", names=names, sums=sums)


def test_not_a_byte_is_lost(both: Both) -> None:
    [found] = of_spark(framed(both.clients).agg(*(F.sum(name) for name in SUMS)))
    assert [found] == both.oracle("select {sums} from rows", sums=", ".join(f"sum({name})::bigint" for name in SUMS))


def test_nobody(spark: SparkSession) -> None:
    assert of_spark(clients(usage(spark, []), 0)) == []


def test_everything_that_adds_up_is_summed() -> None:
    stocks = {"connections", *(kind.row.columns.requests for kind in METERED)}  # a state; and what requests has already
    stocks |= {name for kind in METERED for name in (*kind.row.shadow_columns, *kind.row.cap_columns)}  # of rules
    stocks |= {*addresses.SUMS, "connection_throttle_ms"}  # in one of addresses
    counts = {column.name for column in COLUMNS if column.missing == 0 and column.least == 0}
    assert counts - stocks == set(SUMS)
