"""What each user used, and what it costs: one line for each user, day and thing that is charged for.

Column names and their meaning are those of FOCUS (FinOps Open Cost and Usage Specification) 1.0, so that the file can
be put beside the bills of clouds. What has no meaning here (regions, commitments) is left out, as FOCUS allows for
data of one's own.
"""

from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.metrics.period import Period
from analysis.metrics.rates import RATED, Rates, UnitPrice
from analysis.metrics.sums import total
from analysis.table.schema import TEXT

SERVICE: Final = "Apache Kafka"
NOBODY: Final = "(nobody: refused connections)"
_SAID: Final = {
    "bytes_in": "Bytes sent to brokers",
    "bytes_out": "Bytes received from brokers",
    "requests": "Requests to brokers",
}
_SKUS: Final = pa.schema(
    [
        *((name, TEXT) for name in ("SkuId", "ChargeDescription", "ConsumedUnit")),
        *(("per", pa.float64()), ("PricingUnit", TEXT), ("ListUnitPrice", pa.float64())),
    ]
)
COLUMNS: Final = (
    *("BillingPeriodStart", "BillingPeriodEnd", "ChargePeriodStart", "ChargePeriodEnd", "ChargeCategory"),
    *("ChargeDescription", "ServiceName", "ServiceCategory", "ResourceId", "SubAccountId", "SubAccountName"),
    *("SkuId", "ConsumedQuantity", "ConsumedUnit", "PricingQuantity", "PricingUnit", "ListUnitPrice"),
    *("BilledCost", "EffectiveCost", "BillingCurrency", "x_ShareKnown"),
)
"""ResourceId is the cluster, SubAccountId the user, SkuId what is charged for. ``x_ShareKnown`` is not of FOCUS, which
leaves such names to everybody: the share of the documents of that cluster and day that are not missing."""


def chargeback(clients: DataFrame, rates: Rates, period: Period, loss: DataFrame) -> DataFrame:
    """Return COLUMNS; prices and costs are null where ``rates`` has none. Quantities add up to those of the rows.

    ``loss`` is what ``metrics.loss`` returned: what is missing is in no quantity.
    """
    used = clients.groupBy("cluster", "user", "date").agg(*(total(name).alias(name) for name in RATED))
    lines = used.unpivot(["cluster", "user", "date"], [*RATED], "SkuId", "ConsumedQuantity")
    # A table to join, and not conditions: Spark makes Java of these that does not compile.
    skus = [(sku, _SAID[sku], rated.unit, *_priced(rates.of.get(sku))) for sku, rated in RATED.items()]
    prices = pa.Table.from_arrays([pa.array(each) for each in zip(*skus, strict=True)], schema=_SKUS)
    priced = lines.join(F.broadcast(clients.sparkSession.createDataFrame(prices)), "SkuId")
    known = loss.groupBy("cluster", F.to_date("hour").alias("date")).agg(known_share().alias("x_ShareKnown"))
    priced = priced.join(F.broadcast(known), ["cluster", "date"], "left")
    midnight = F.col("date").cast("timestamp")
    quantity = F.col("ConsumedQuantity") / F.col("per")
    cost = quantity * F.col("ListUnitPrice")
    user = F.coalesce("user", F.lit(NOBODY))
    values = {
        "BillingPeriodStart": F.date_trunc("month", midnight),
        "BillingPeriodEnd": F.add_months(F.trunc("date", "month"), 1).cast("timestamp"),
        "ChargePeriodStart": F.greatest(midnight, F.lit(period.begin)),
        "ChargePeriodEnd": F.least(F.date_add("date", 1).cast("timestamp"), F.lit(period.end)),
        "ChargeCategory": F.lit("Usage"),
        "ServiceName": F.lit(SERVICE),
        "ServiceCategory": F.lit("Integration"),
        "ResourceId": F.col("cluster"),
        "SubAccountId": user,
        "SubAccountName": user,
        "PricingQuantity": quantity,
        "BilledCost": cost,
        "EffectiveCost": cost,
        "BillingCurrency": F.lit(rates.currency).cast("string"),
    }
    return priced.select(*(values[name].alias(name) if name in values else F.col(name) for name in COLUMNS))


def known_share() -> Column:
    """Return the share of the documents of ``metrics.loss`` that are not missing; null where none was expected."""
    return F.try_divide(total("documents"), total("expected"))


def _priced(rate: UnitPrice | None) -> tuple[float | None, str | None, float | None]:
    return (None, None, None) if rate is None else (float(rate.per), rate.unit, float(rate.price))
