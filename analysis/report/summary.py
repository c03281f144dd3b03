"""From the tables of a report to its findings: the worst, the closest, the largest, and sums of all."""

from datetime import UTC
from functools import reduce
from operator import add
from typing import Any, Final

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.metrics import neighbours, talkers
from analysis.metrics.counters import KINDS
from analysis.metrics.headroom import COUNTED
from analysis.metrics.period import Period
from analysis.metrics.rates import RATED
from analysis.metrics.sums import total
from analysis.metrics.trend import days
from analysis.page import words
from analysis.report import coinciding, missing
from analysis.report.findings import (
    Charge,
    Connected,
    Episode,
    Headroom,
    OfRule,
    PeriodTotals,
    RateSeries,
    ReportFindings,
    Talker,
    Throttled,
    Trend,
    UnderCap,
)
from analysis.report.tables import ReportChoices

CLOSE: Final = 0.9
"""From which p99 of used over limit on a limit is said to be close."""
_THROTTLED: Final = 30
_RULES: Final = 200
_UNDER_CAP: Final = 5
_CONNECTED: Final = 100
_EPISODES: Final = 200
_HEADROOM: Final = 30
_TALKERS: Final = 100
_TRENDS: Final = 12
_CHARGES: Final = 500
_WHO: Final = ("user", "client_id", "broker", "kind", "rule")

Tables = dict[str, DataFrame]


def summarize(tables: Tables, period: Period, choices: ReportChoices, place: str) -> ReportFindings:
    """Return what a page shows of the tables; ``place`` is where they are."""
    return ReportFindings(
        clusters=sorted(row.cluster for row in tables["talkers"].select("cluster").distinct().collect()),
        begin=period.begin,
        end=period.end,
        modes=period.modes,
        step_s=period.step_s,
        steps=period.steps(),
        gap_ms=choices.gap_ms,
        instances=period.instances,
        brokers=period.brokers,
        tables=place,
        totals=_totals(tables, period),
        loss=missing.summarize(tables["loss"], period),
        throttled=_throttled(tables["muted"], period),
        episodes=_episodes(tables["episodes"]),
        rules=_rules(tables),
        connected=_connected(tables["addresses"]),
        headroom=_headroom(tables["headroom"]),
        talkers=_talkers(tables["talkers"]),
        series=_series(tables["over_time"], period),
        neighbours=coinciding.found(tables),
        neighbours_since=period.last_dates(neighbours.DATES).begin,
        compared=coinciding.compared(tables),
        trends=_trends(tables, period),
        days=days(tables["headroom_days"], period).select("date").distinct().count(),
        charges=_charges(tables["chargeback"]),
        currency=choices.rates.currency,
    )


def _totals(tables: Tables, period: Period) -> PeriodTotals:
    named = F.col("user").isNotNull()
    muted = reduce(add, (F.col(f"{kind}_muted_ms") for kind in KINDS))
    sums = {
        "clients": F.count_if(named),
        "throttled": F.count_if(named & (muted > 0)),
        "muted_ms": total(muted),
        "refused": total("connections_refused"),
        **{name: total(name) for name in ("bytes_in", "bytes_out", "requests")},
    }
    [found] = tables["talkers"].agg(*(column.alias(name) for name, column in sums.items())).collect()
    closeness = tables["headroom"].agg(
        F.count_if(F.col("max") > 0).alias("counters"), F.count_if(F.col("p99") >= CLOSE).alias("close")
    )
    [limits] = closeness.collect()
    came = tables["addresses"].agg(
        F.coalesce(total("connection_attempts"), F.lit(0)).alias("attempts"),
        F.coalesce(total("connection_throttled"), F.lit(0)).alias("attempts_refused"),
    )
    [connected] = came.collect()
    figures = {**found.asDict(), **limits.asDict(), **connected.asDict()}
    return PeriodTotals(rows=period.rows, episodes=tables["episodes"].count(), **figures)


def _throttled(muted: DataFrame, period: Period) -> list[Throttled]:
    """Return the clients that were muted longest, with the share of each step."""
    sum_ms = total("muted_ms").alias("muted_ms")
    found = muted.groupBy(*_WHO).agg(sum_ms).orderBy(F.desc("muted_ms"), *_WHO).limit(_THROTTLED).toArrow()
    if not found.num_rows:
        return []
    order = _numbered(period)
    worst = found.to_pylist()
    shares = {tuple(row[name] for name in _WHO): [0.0] * len(order) for row in worst}
    chosen = muted.sparkSession.createDataFrame(found.select(_WHO).rename_columns([f"of_{name}" for name in _WHO]))
    same = [F.col(name).eqNullSafe(F.col(f"of_{name}")) for name in _WHO]
    step = F.floor(F.col("begin_ms") / (1000 * period.step_s)) * period.step_s
    for cell in muted.join(F.broadcast(chosen), same).groupBy(*_WHO, step.alias("at")).agg(sum_ms).collect():
        # Of a client on several proxy instances the sum may be more than the step.
        share = cell.muted_ms / 1000 / period.step_s
        shares[tuple(cell[name] for name in _WHO)][order[cell["at"]]] = min(share, 1.0)
    return [
        Throttled(**{**row, "rule": row["rule"] or ""}, shares=series)
        for row, series in zip(worst, shares.values(), strict=True)
    ]


def _numbered(period: Period) -> dict[int, int]:
    """Return the number of each step by its begin in Unix seconds."""
    return {int(step.timestamp()): number for number, step in enumerate(period.steps())}


def _episodes(episodes: DataFrame) -> list[Episode]:
    longest = episodes.orderBy(F.desc("muted_ms"), "begin", *_WHO).limit(_EPISODES)
    names = ("mode", "begin", "end", "muted_ms", "throttled", "limit")
    return [Episode(**_utc(row, *_WHO, *names)) for row in longest.collect()]


def _rules(tables: Tables) -> list[OfRule]:
    order = (F.desc("muted_ms"), F.desc("used"))
    worst = tables["rules"].orderBy("kind", *order, "rule", "exempt", "shadow", "mode").limit(_RULES).collect()
    client = ("kind", "rule", "mode", "user", "client_id")
    used = tables["capped"].groupBy(*client).agg(*(total(name).alias(name) for name in ("used", "muted_ms")))
    of_cap = Window.partitionBy(*client[:3])
    ranked = used.withColumns(
        {"clients": F.count(F.lit(1)).over(of_cap), "place": F.row_number().over(of_cap.orderBy(*order[::-1], *client))}
    )
    most: dict[tuple[str, str, str], list[UnderCap]] = {}
    clients: dict[tuple[str, str, str], int] = {}
    for each in ranked.where(F.col("place") <= _UNDER_CAP).orderBy("place").collect():
        cap = (each.kind, each.rule, each.mode)
        clients[cap] = each.clients
        most.setdefault(cap, []).append(UnderCap(**_of(each, *UnderCap.__slots__)))
    names = [name for name in OfRule.__slots__ if name not in {"clients", "most"}]
    return [
        OfRule(**_of(row, *names), clients=clients.get(cap, 0), most=most.get(cap, ()))
        for row in worst
        for cap in [(row.kind, row.rule, row.mode)]
    ]


def _connected(addresses: DataFrame) -> list[Connected]:
    most = addresses.orderBy(
        F.desc("accept_waits"), F.desc("connection_throttled"), F.desc("connection_attempts"), "ip", "listener"
    ).limit(_CONNECTED)
    names = {"connection_attempts": "attempts", "connection_throttled": "refused", "connection_muted_ms": "held_ms"}
    names |= {"connection_rule": "rule", "connection_limit": "limit"}
    names |= {"accept_waits": "waits", "accept_wait_ms": "wait_ms"}
    renamed = most.withColumnsRenamed(names)
    return [Connected(**_of(row, *Connected.__slots__)) for row in renamed.collect()]


def _headroom(headroom: DataFrame) -> list[Headroom]:
    used = headroom.where(F.col("max") > 0)
    closest = used.orderBy(F.desc("p99"), F.desc("max"), "unit_user", "unit_client_id").limit(_HEADROOM)
    return [Headroom(**_of(row, *Headroom.__slots__)) for row in closest.collect()]


def _talkers(found: DataFrame) -> list[Talker]:
    return [Talker(**_of(row, *Talker.__slots__)) for row in talkers.top(found, _TALKERS).collect()]


def _series(over_time: DataFrame, period: Period) -> list[RateSeries]:
    order = _numbered(period)
    labels: dict[int, str | None] = {talkers.OTHERS: None}
    layers: dict[int, list[float]] = {}
    for cell in over_time.collect():
        if cell.place != talkers.OTHERS:
            labels[cell.place] = words.client(cell.user, cell.client_id)
        layers.setdefault(cell.place, [0.0] * len(order))[order[cell.step_s]] += cell.bytes_in + cell.bytes_out
    others = layers.pop(talkers.OTHERS, [])
    named = [RateSeries(labels[place], layers[place]) for place in sorted(layers)]
    return [*named, RateSeries(None, others)] if named and any(others) else named


def _trends(tables: Tables, period: Period) -> list[Trend]:
    """Return those that meet their limit first, then the steepest."""
    known = tables["trend"].where(F.col("verdict") != "not enough data")
    nearest = known.orderBy(
        F.col("verdict") != "at its limit",
        F.coalesce("days_left", F.lit(float("inf"))),
        F.desc(F.abs("slope_per_day")),
        "counter",
    ).limit(_TRENDS)
    chosen = nearest.collect()
    points: dict[tuple[str, int], list[tuple[int, float]]] = {(row.kind, row.counter): [] for row in chosen}
    wanted = nearest.select(*COUNTED)
    for each in days(tables["headroom_days"], period).join(F.broadcast(wanted), [*COUNTED]).collect():
        points[each.kind, each.counter].append((each.day, each.p99))
    names = [name for name in Trend.__slots__ if name != "points"]
    return [Trend(**_of(row, *names), points=sorted(points[row.kind, row.counter])) for row in chosen]


def _charges(chargeback: DataFrame) -> list[Charge]:
    used = (total(F.when(F.col("SkuId") == sku, F.col("ConsumedQuantity"))).alias(sku) for sku in RATED)
    users = chargeback.groupBy(F.col("SubAccountId").alias("user")).agg(*used, F.sum("EffectiveCost").alias("cost"))
    most = users.orderBy(F.desc_nulls_last("cost"), (F.col("bytes_in") + F.col("bytes_out")).desc(), "user")
    return [Charge(**_of(row, *Charge.__slots__)) for row in most.limit(_CHARGES).collect()]


def _of(row: Row, *names: str) -> dict[str, Any]:
    return {name: row[name] for name in names}


def _utc(row: Row, *names: str) -> dict[str, Any]:
    """Return the same with aware times: Spark hands out local ones without a zone."""
    return _of(row, *names) | {name: row[name].astimezone(UTC) for name in ("begin", "end")}
