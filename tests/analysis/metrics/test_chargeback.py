from datetime import UTC, datetime

import pytest
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.metrics.chargeback import COLUMNS, NOBODY, chargeback
from analysis.metrics.rates import RATED, Rates, UnitPrice
from tests.analysis.metrics.conftest import Both, of_spark, same

pytestmark = pytest.mark.spark

RATES = Rates("EUR", {"bytes_in": UnitPrice(10**6, "1MB", 0.02), "requests": UnitPrice(1000, "1000", 1.5)})

SKU = """
select cluster, coalesce("user", '{nobody}'), t // 86400000 * 86400, '{sku}', sum({sku})::bigint,
  {quantity}, {cost}, 'EUR' from rows group by all
"""


def test_quantities_and_costs(both: Both) -> None:
    found = chargeback(both.clients, RATES, both.period).select(
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
    found = chargeback(both.clients, Rates(), both.period)
    assert tuple(found.columns) == COLUMNS
    priced = ("PricingQuantity", "PricingUnit", "ListUnitPrice", "BilledCost", "EffectiveCost", "BillingCurrency")
    assert of_spark(found.select(*priced).distinct()) == [(None,) * len(priced)]


def test_periods_end_where_days_and_the_report_end(both: Both) -> None:
    found = chargeback(both.clients, RATES, both.period)
    names = ("BillingPeriodStart", "BillingPeriodEnd", "ChargePeriodStart", "ChargePeriodEnd")
    times = of_spark(found.select(*(F.unix_millis(name) for name in names)).distinct())
    midnight, march, april = (
        int(datetime(2026, month, day, tzinfo=UTC).timestamp() * 1000) for month, day in ((3, 2), (3, 1), (4, 1))
    )
    begin, end = (round(time.timestamp() * 1000) for time in (both.period.begin, both.period.end))
    assert times == [(march, april, begin, midnight), (march, april, midnight, end)]
