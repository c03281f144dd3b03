"""What each user used, and what it costs: one line for each user, day and thing that is charged for.

Column names and their meaning are those of FOCUS (FinOps Open Cost and Usage Specification) 1.0, so that the file can
be put beside the bills of clouds. What has no meaning here (regions, commitments) is left out, as FOCUS allows for
data of one's own.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.metrics.loss import shares
from analysis.metrics.period import Period
from analysis.metrics.rates import RATED, Rates, UnitPrice
from analysis.table import hashes
from analysis.table.arrays import Ints, added, ints, summed, together, with_columns
from analysis.table.parts import Parts
from analysis.table.schema import COUNT, FILE, LIMIT, TEXT, TIME

NOBODY: Final = "(nobody: refused connections)"
_SAID: Final = {
    "bytes_in": "Bytes sent to brokers",
    "bytes_out": "Bytes received from brokers",
    "requests": "Requests to brokers",
}
_SAME: Final = {"ChargeCategory": "Usage", "ServiceName": "Apache Kafka", "ServiceCategory": "Integration"}
_APART: Final = ("cluster", "user", "date")
_USED: Final = pa.schema(
    [FILE.field("cluster"), FILE.field("user"), ("date", pa.date32()), *((name, COUNT) for name in RATED)]
)
_USED_ROWS: Final = 50_000
"""Of users and days, of which lines are made at a time."""
COLUMNS: Final = (
    *("BillingPeriodStart", "BillingPeriodEnd", "ChargePeriodStart", "ChargePeriodEnd", "ChargeCategory"),
    *("ChargeDescription", "ServiceName", "ServiceCategory", "ResourceId", "SubAccountId", "SubAccountName"),
    *("SkuId", "ConsumedQuantity", "ConsumedUnit", "PricingQuantity", "PricingUnit", "ListUnitPrice"),
    *("BilledCost", "EffectiveCost", "BillingCurrency", "x_ShareKnown"),
)
"""ResourceId is the cluster, SubAccountId the user, SkuId what is charged for. ``x_ShareKnown`` is not of FOCUS, which
leaves such names to everybody: the share of the documents of that cluster and day that are not missing."""
_TYPES: Final = {
    **dict.fromkeys(("BillingPeriodStart", "BillingPeriodEnd", "ChargePeriodStart", "ChargePeriodEnd"), TIME),
    "ConsumedQuantity": COUNT,
    **dict.fromkeys(("PricingQuantity", "ListUnitPrice", "BilledCost", "EffectiveCost", "x_ShareKnown"), LIMIT),
}
_SCHEMA: Final = pa.schema([(name, _TYPES.get(name, TEXT)) for name in COLUMNS])


def chargeback(clients: Parts, rates: Rates, period: Period, loss: pa.Table) -> Parts:
    """Return COLUMNS; prices and costs are null where ``rates`` has none. Quantities add up to those of the rows.

    In the order of users, clusters, days and what is charged for. ``loss`` is what ``metrics.loss`` returned: what is
    missing is in no quantity.
    """
    used = together(summed(clients.tables(_USED.names), _APART, dict.fromkeys(RATED, "sum")), _USED)
    named = used.set_column(1, "user", pc.fill_null(used["user"], NOBODY))
    ordered = named.sort_by([(name, "ascending") for name in ("user", "cluster", "date")])
    known = _known(loss)
    return Parts.gathered(
        (_lines(ordered.slice(at, _USED_ROWS), known, rates, period) for at in range(0, len(ordered), _USED_ROWS)),
        _SCHEMA,
    )


def _known(loss: pa.Table) -> pa.Table:
    """Return ``cluster``, ``date`` and ``share``: of documents, those that are not missing; null: none was expected."""
    hours = loss.filter(loss["hour"].is_valid())
    days = with_columns(hours.select(["cluster", "documents", "expected"]), {"date": hours["hour"].cast(pa.date32())})
    sums = added(days, ("cluster", "date"), {"documents": "sum", "expected": "sum"})
    share = shares(ints(sums, "documents"), ints(sums, "expected"))
    return with_columns(sums, {"share": pa.array(share, mask=ints(sums, "expected") == 0)})


def _lines(used: pa.Table, known: pa.Table, rates: Rates, period: Period) -> pa.Table:
    """Return the lines of some users and days."""
    skus = sorted(RATED)
    row = np.repeat(np.arange(len(used)), len(skus))
    sku = np.tile(np.arange(len(skus)), len(used))
    at = hashes.places(used, known, ("cluster", "date"))
    share = known["share"].take(pa.array(at, mask=at < 0)).take(pa.array(row))
    priced = zip(*(_priced(rates.of.get(name)) for name in skus), strict=True)
    per, unit, price = map(pa.array, priced, (LIMIT, TEXT, LIMIT))
    consumed = np.stack([ints(used, name) for name in skus], axis=1).reshape(-1)
    quantity = pc.divide(pa.array(consumed.astype(float)), per.take(pa.array(sku)))
    cost = pc.multiply(quantity, price.take(pa.array(sku)))
    said = {
        "ChargeDescription": [_SAID[name] for name in skus],
        "ConsumedUnit": [RATED[name].unit for name in skus],
        "SkuId": skus,
    }
    user, cluster = (used[name].take(pa.array(row)) for name in ("user", "cluster"))
    columns = {
        **_times(used["date"].cast(pa.int32()).to_numpy()[row], period),
        **{name: pa.array(each, TEXT).take(pa.array(sku)) for name, each in said.items()},
        **{name: pa.repeat(each, len(row)) for name, each in _SAME.items()},
        "ResourceId": cluster,
        **dict.fromkeys(("SubAccountId", "SubAccountName"), user),
        "ConsumedQuantity": consumed,
        "PricingQuantity": quantity,
        "PricingUnit": unit.take(pa.array(sku)),
        "ListUnitPrice": price.take(pa.array(sku)),
        **dict.fromkeys(("BilledCost", "EffectiveCost"), cost),
        "BillingCurrency": pa.array([rates.currency] * len(row), TEXT),
        "x_ShareKnown": share,
    }
    return together([pa.table(columns)], _SCHEMA)


def _times(day: Ints, period: Period) -> dict[str, pa.Array]:
    """Return when billing and charge periods begin and end, of days since 1970."""
    midnight = day.astype("datetime64[D]").astype("datetime64[us]")
    month = midnight.astype("datetime64[M]")
    begin, end = (np.datetime64(each.replace(tzinfo=None), "us") for each in (period.begin, period.end))
    times = {
        "BillingPeriodStart": month,
        "BillingPeriodEnd": month + 1,
        "ChargePeriodStart": np.maximum(midnight, begin),
        "ChargePeriodEnd": np.minimum(midnight + np.timedelta64(1, "D"), end),
    }
    return {name: pa.array(each.astype("datetime64[us]")).cast(TIME) for name, each in times.items()}


def _priced(rate: UnitPrice | None) -> tuple[float | None, str | None, float | None]:
    return (None, None, None) if rate is None else (float(rate.per), rate.unit, float(rate.price))
