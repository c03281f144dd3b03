"""What stands behind a finding of ``neighbours``: how bursts and delays go together in time, and whom they delayed."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.metrics.broker_moments import CLIENT, MOMENT_S, PLACE, BrokerMoments, of_brokers
from analysis.metrics.coincidence import Flags, bursts, later
from analysis.metrics.counters import KINDS
from analysis.metrics.neighbours import COINCIDES
from analysis.metrics.period import Period
from analysis.metrics.sums import total
from analysis.table.arrays import Floats, Ints
from analysis.table.schema import COUNT, FILE, LIMIT, TEXT

BEFORE_S: Final = 300
AFTER_S: Final = 600
_OFFSETS: Final = np.arange(-BEFORE_S // MOMENT_S, AFTER_S // MOMENT_S)
_EVIDENCE: Final = pa.schema(
    [
        *(FILE.field(name) for name in CLIENT),
        *(("measure", TEXT), ("offset_s", COUNT), ("bursts", COUNT)),
        *(("bytes_per_s", LIMIT), ("others_ms", LIMIT), ("expected_ms", LIMIT)),
    ]
)
_PEAKS: Final = pa.schema([FILE.field("cluster"), FILE.field("broker"), ("number", COUNT), ("moment", COUNT)])


def evidence(sums: DataFrame, found: DataFrame, period: Period) -> DataFrame:
    """Return what happened around the begin of a burst, on average, of all that coincide (``neighbours.neighbours``).

    CLIENT, ``measure``, ``offset_s`` from the begin, of how many ``bursts``; the client's ``bytes_per_s``; and, for
    each second, ``others_ms``, how long others were delayed, and ``expected_ms``, what was usual then of those active,
    made to agree with the hour. Bursts cut off by an end of the period count where they are in it.
    """
    rows: list[dict[str, object]] = []
    for one in _coinciding(sums, found, period):
        peak, others = one.broker.peak(one.number), one.broker.others(one.number, one.measure)
        at = bursts(peak)[:, None] + _OFFSETS
        inside = (at >= 0) & (at < one.broker.count)
        series = {
            "bursts": np.ones(one.broker.count),
            "bytes_per_s": one.broker.of(one.number, "bytes") / MOMENT_S,
            "others_ms": others.delay / MOMENT_S,
            "expected_ms": others.expected * others.scale() / MOMENT_S,
        }
        sums_of = {name: _sum(values, at, inside) for name, values in series.items()}
        count = sums_of.pop("bursts")
        for place, offset in enumerate((_OFFSETS * MOMENT_S).tolist()):
            means = {name: float(values[place] / max(count[place], 1)) for name, values in sums_of.items()}
            rows.append(
                {**one.client, "measure": one.measure, "offset_s": offset, "bursts": int(count[place]), **means}
            )
    return sums.sparkSession.createDataFrame(pa.Table.from_pylist(rows, _EVIDENCE))


def victims(muted: DataFrame, sums: DataFrame, found: DataFrame, counted: DataFrame, period: Period) -> DataFrame:
    """Return CLIENT that coincides with others' mutes, ``victim_user`` and ``victim_client_id`` of those muted then.

    ``delay_ms`` is what it was muted in peaks, as late after them as ``found`` says. ``shared`` is whether the two were
    charged to a counter together, by ``counted``: then what one uses, the other cannot.
    """
    loud = found.where((F.col("verdict") == COINCIDES) & (F.col("measure") == "muted_ms"))
    peaks = muted.sparkSession.createDataFrame(_peaks(sums, loud, period))
    named = peaks.join(F.broadcast(loud.select(*CLIENT, "number")), [*PLACE, "number"])
    moment = F.floor(F.col("begin_ms") / (1000 * MOMENT_S)).alias("moment")
    victim = (F.col("user").alias("victim_user"), F.col("client_id").alias("victim_client_id"))
    delayed = muted.groupBy(*PLACE, moment, *victim).agg(total("muted_ms").alias("delay_ms"))
    itself = F.col("user").eqNullSafe(F.col("victim_user")) & F.col("client_id").eqNullSafe(F.col("victim_client_id"))
    met = delayed.join(F.broadcast(named), [*PLACE, "moment"]).where(~itself)
    pair = (*CLIENT, "victim_user", "victim_client_id")
    sums_of = met.groupBy(*pair).agg(total("delay_ms").alias("delay_ms"))
    of_loud = counted.join(F.broadcast(loud.select(*CLIENT)), [*CLIENT])
    both = counted.select(*PLACE, *victim, "counter").join(F.broadcast(of_loud), [*PLACE, "counter"])
    told = sums_of.join(both.select(*pair, F.lit(True).alias("shared")).distinct(), [*pair], "left")
    return told.withColumn("shared", F.coalesce("shared", F.lit(False)))


def counted(clients: DataFrame, capped: DataFrame) -> DataFrame:
    """Return CLIENT and each ``counter`` that it was charged to, of quotas (``clients.clients``) and of caps."""
    of_kinds = [
        clients.where(F.col(f"{kind}_rule").isNotNull()).select(*CLIENT, F.col(f"{kind}_counter").alias("counter"))
        for kind in KINDS
    ]
    return reduce(DataFrame.unionByName, [*of_kinds, capped.select(*CLIENT, "counter")]).distinct()


@dataclass(frozen=True, slots=True)
class _Coinciding:
    broker: BrokerMoments
    number: int
    measure: str
    lag: int
    client: dict[str, object]
    """CLIENT"""


def _coinciding(sums: DataFrame, found: DataFrame, period: Period) -> Iterator[_Coinciding]:
    loud = found.where(F.col("verdict") == COINCIDES).orderBy(*CLIENT, "measure").collect()
    for broker in of_brokers(sums, {(each.cluster, each.broker) for each in loud}, period):
        for each in loud:
            if (each.cluster, each.broker) == broker.place:
                client = {name: each[name] for name in CLIENT}
                yield _Coinciding(broker, each.number, each.measure, each.lag_s // MOMENT_S, client)


def _peaks(sums: DataFrame, loud: DataFrame, period: Period) -> pa.Table:
    """Return PLACE, ``number`` and ``moment``: when others' delay is laid to these clients' peaks."""
    found = [_PEAKS.empty_table()]
    for one in _coinciding(sums, loud, period):
        moment = np.flatnonzero(later(one.broker.peak(one.number), one.lag)) + one.broker.first
        same = [[each] * len(moment) for each in (*one.broker.place, one.number)]
        found.append(pa.table([*same, moment], schema=_PEAKS))
    return pa.concat_tables(found)


def _sum(values: Floats, at: Ints, inside: Flags) -> Floats:
    found: Floats = np.where(inside, values[np.clip(at, 0, len(values) - 1)], 0).sum(axis=0)
    return found
