"""Noisy neighbours: whose peaks on a broker coincide with others' delays.

Time is cut into moments of 10 s. A client *peaks* in a moment in which it moves at least twice its own average on
that broker, and a tenth or more of all the broker's bytes. Others are *delayed* for as long as they are muted. Then

    coincidence = others' delay in its peaks / others' delay in all moments
    expected    = its peaks / all moments        what the coincidence would be if the two had nothing to do with it
    score       = coincidence - expected         from -1 to 1; 0 is chance

What it does not say is that one caused the other: a quota mutes its own clients, whoever else is busy. It says with
whom to begin when delays come in waves. Whether the broker itself became slow is in ``others_request_ms_in_peaks``,
against ``others_request_ms_elsewhere``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.metrics.counters import KINDS
from analysis.metrics.few import Few
from analysis.metrics.period import Period
from analysis.metrics.sums import total
from analysis.table.arrays import ints, summed, times_ms
from analysis.table.scan import UsageRows
from analysis.table.schema import FILE

MOMENT_S: Final = 10
PEAK_OVER_AVERAGE: Final = 2.0
PEAK_SHARE: Final = 0.1
CANDIDATES: Final = 20
"""The clients of each broker that are looked at: those that move most."""
PLACE: Final = ("cluster", "broker")
CLIENT: Final = (*PLACE, "user", "client_id")
_SUMS: Final = ("bytes", "delay_ms", "requests", "request_time_ms")
_APART: Final = (*PLACE, "moment", "number")
_MUTED: Final = tuple(f"{kind}_muted_ms" for kind in KINDS)
_READ: Final = ("time", *CLIENT, "bytes_in", "bytes_out", *_MUTED, "requests", "request_time_ms")
_SCHEMA: Final = pa.schema(
    [
        *(FILE.field(name) for name in PLACE),
        *((name, pa.int64()) for name in ("moment", "number", *_SUMS)),
    ]
)


def candidates(clients: DataFrame) -> DataFrame:
    """Return the CLIENTs that may be neighbours, each with its ``number`` on its broker, from 1."""
    moved = total(F.col("bytes_in") + F.col("bytes_out")).alias("bytes")
    named = clients.where(F.col("user").isNotNull()).groupBy(*CLIENT).agg(moved)
    most = Window.partitionBy(*PLACE).orderBy(F.desc("bytes"), "user", "client_id")
    ranked = named.where(F.col("bytes") > 0).withColumn("number", F.row_number().over(most))
    return ranked.where(F.col("number") <= CANDIDATES).drop("bytes")


def moments(usage: UsageRows, clients: DataFrame) -> DataFrame:
    """Return PLACE, ``moment`` (a number), the ``number`` of a candidate (null: all others), and their sums."""
    few = Few.of(clients.select(*CLIENT, "number").toArrow(), CLIENT, "number")
    return usage.scan(_READ, _Moments(few), _SCHEMA).groupBy(*_APART).agg(*(total(name).alias(name) for name in _SUMS))


@dataclass(frozen=True, slots=True)
class _Moments:
    candidates: Few

    def __call__(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        return summed(map(self._columns, tables), _APART, dict.fromkeys(_SUMS, "sum"))

    def _columns(self, table: pa.Table) -> pa.Table:
        number = self.candidates.of_rows(table)
        columns = {
            **{name: table[name] for name in PLACE},
            "moment": times_ms(table) // (1000 * MOMENT_S),
            "number": pa.array(number, mask=number < 0),
            "bytes": ints(table, "bytes_in") + ints(table, "bytes_out"),
            "delay_ms": reduce(add, (ints(table, name) for name in _MUTED)),
            **{name: table[name] for name in ("requests", "request_time_ms")},
        }
        return pa.table(columns)


def neighbours(sums: DataFrame, clients: DataFrame, period: Period) -> DataFrame:
    """Return CLIENT with score, coincidence, expected, and the numbers behind them; ``sums`` is from ``moments``."""
    marked = peaks(sums, period)
    others = {name: F.col(f"all_{name}") - F.col(name) for name in _SUMS}
    in_peak = F.col("peak")
    score = marked.groupBy(*PLACE, "number").agg(
        F.sum(in_peak.cast("int")).alias("peaks"),
        total(F.when(in_peak, others["delay_ms"]).otherwise(0)).alias("others_delay_in_peaks_ms"),
        total(F.when(in_peak, others["requests"]).otherwise(0)).alias("requests_in"),
        total(F.when(in_peak, others["request_time_ms"]).otherwise(0)).alias("time_in"),
        total("delay_ms").alias("own_delay_ms"),
        total("bytes").alias("bytes"),
        total("requests").alias("own_requests"),
        total("request_time_ms").alias("own_time"),
    )
    whole = sums.groupBy(*PLACE).agg(*(total(name).alias(f"broker_{name}") for name in _SUMS))
    joined = score.join(whole, [*PLACE])
    others_delay = F.col("broker_delay_ms") - F.col("own_delay_ms")
    coincidence = F.try_divide(F.col("others_delay_in_peaks_ms"), others_delay)
    expected = F.col("peaks") / moments_of(period)
    requests_elsewhere = F.col("broker_requests") - F.col("own_requests") - F.col("requests_in")
    time_elsewhere = F.col("broker_request_time_ms") - F.col("own_time") - F.col("time_in")
    return (
        joined.where((F.col("peaks") > 0) & (others_delay > 0))
        .join(F.broadcast(clients), [*PLACE, "number"])
        .select(
            *CLIENT,
            (coincidence - expected).alias("score"),
            coincidence.alias("coincidence"),
            expected.alias("expected"),
            "peaks",
            "others_delay_in_peaks_ms",
            others_delay.alias("others_delay_ms"),
            F.try_divide(F.col("bytes"), F.col("broker_bytes")).alias("share_of_bytes"),
            F.try_divide(F.col("time_in"), F.col("requests_in")).alias("others_request_ms_in_peaks"),
            F.try_divide(time_elsewhere, requests_elsewhere).alias("others_request_ms_elsewhere"),
        )
    )


def peaks(sums: DataFrame, period: Period) -> DataFrame:
    """Return the moments of candidates, each with ``all_…`` of its broker, and whether it is a ``peak``."""
    at_once = Window.partitionBy(*PLACE, "moment")
    totals = sums.select("*", *(total(name, at_once).alias(f"all_{name}") for name in _SUMS))
    average = total("bytes", Window.partitionBy(*PLACE, "number")) / moments_of(period)
    loud = F.col("bytes") >= PEAK_OVER_AVERAGE * average
    large = F.col("bytes") >= PEAK_SHARE * F.col("all_bytes")
    candidates_alone = totals.where(F.col("number").isNotNull())
    return candidates_alone.withColumn("peak", (F.col("bytes") > 0) & loud & large)


def victims(muted: DataFrame, sums: DataFrame, clients: DataFrame, period: Period) -> DataFrame:
    """Return CLIENT, ``victim_user``, ``victim_client_id`` and the ``delay_ms`` of each in the peaks of a CLIENT."""
    moment = F.floor(F.col("begin_ms") / (1000 * MOMENT_S)).alias("moment")
    delayed = muted.groupBy(
        *PLACE, moment, F.col("user").alias("victim_user"), F.col("client_id").alias("victim_client_id")
    ).agg(total("muted_ms").alias("delay_ms"))
    of_whom = peaks(sums, period).where("peak").select(*PLACE, "moment", "number")
    named = of_whom.join(F.broadcast(clients), [*PLACE, "number"]).drop("number")
    itself = F.col("user").eqNullSafe(F.col("victim_user")) & F.col("client_id").eqNullSafe(F.col("victim_client_id"))
    met = delayed.join(named, [*PLACE, "moment"]).where(~itself)
    return met.groupBy(*CLIENT, "victim_user", "victim_client_id").agg(total("delay_ms").alias("delay_ms"))


def moments_of(period: Period) -> int:
    """Return how many moments the period touches."""
    first = int(period.begin.timestamp() // MOMENT_S)
    return max(-int(-period.end.timestamp() // MOMENT_S) - first, 1)
