from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.metrics.chargeback import COLUMNS, NOBODY, chargeback
from analysis.metrics.rates import RATED, Rates, UnitPrice
from tests.analysis.metrics.conftest import Both, of_spark, same
from tests.analysis.records import framed

pytestmark = pytest.mark.spark

RATES = Rates("EUR", {"bytes_in": UnitPrice(10**6, "1MB", 0.02), "requests": UnitPrice(1000, "1000", 1.5)})

HOURS = ((1, 23, 0), (2, 0, 5), (2, 1, 0), (2, 2, 5))
SKU = """
select cluster, coalesce("user", '{nobody}'), t // 86400000 * 86400, '{sku}', sum({sku})::bigint,
  {quantity}, {cost}, 'EUR' from rows group by all
"""


def lost(both: Both) -> pa.Table:
    """On the second day one of four documents of the cluster is missing; of the first nothing is."""
    hours = [(datetime(2026, 3, day, hour, tzinfo=UTC), 10, 10 + missing) for day, hour, missing in HOURS]
    rows = [("demo", *each) for each in hours] + [("other", hours[0][0], 1, 100), (None, None, 0, 0)]
    frame = both.usage.spark.createDataFrame(rows, "cluster string, hour timestamp, documents long, expected long")
    return frame.toArrow()


def test_each_line_says_how_much_of_its_day_is_known(both: Both) -> None:
    found = framed(chargeback(both.clients, RATES, both.period, lost(both)))
    shares = found.select(F.to_date("ChargePeriodStart").cast("string"), "x_ShareKnown").distinct()
    assert of_spark(shares) == [("2026-03-01", 1.0), ("2026-03-02", 0.75)]


def test_quantities_and_costs(both: Both) -> None:
    found = framed(chargeback(both.clients, RATES, both.period, lost(both))).select(
        "ResourceId",
        "SubAccountId",
        F.unix_seconds(F.date_trunc("day", "ChargePeriodStart")),
        "SkuId",
        "ConsumedQuantity",
        "PricingQuantity",
        "BilledCost",
        "BillingCurrency",
    )
    of_sku = []
    for sku in RATED:
        rate = RATES.of.get(sku)
        quantity = "null" if rate is None else f"sum({sku}) / {rate.per}::double"
        cost = "null" if rate is None else f"{quantity} * {rate.price}"
        of_sku.append(SKU.format(nobody=NOBODY, sku=sku, quantity=quantity, cost=cost))
    same(of_spark(found), both.oracle("{lines}", lines=" union all ".join(of_sku)))


def test_without_rates_there_are_quantities_alone(both: Both) -> None:
    found = framed(chargeback(both.clients, Rates(), both.period, lost(both)))
    assert tuple(found.columns) == COLUMNS
    priced = ("PricingQuantity", "PricingUnit", "ListUnitPrice", "BilledCost", "EffectiveCost", "BillingCurrency")
    assert of_spark(found.select(*priced).distinct()) == [(None,) * len(priced)]


def test_periods_end_where_days_and_the_report_end(both: Both) -> None:
    found = framed(chargeback(both.clients, RATES, both.period, lost(both)))
    names = ("BillingPeriodStart", "BillingPeriodEnd", "ChargePeriodStart", "ChargePeriodEnd")
    times = of_spark(found.select(*(F.unix_millis(name) for name in names)).distinct())
    midnight, march, april = (
        int(datetime(2026, month, day, tzinfo=UTC).timestamp() * 1000) for month, day in ((3, 2), (3, 1), (4, 1))
    )
    begin, end = (round(time.timestamp() * 1000) for time in (both.period.begin, both.period.end))
    assert times == [(march, april, begin, midnight), (march, april, midnight, end)]
