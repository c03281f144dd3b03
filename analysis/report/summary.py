"""From the tables of a report to its findings: the worst, the closest, the largest, and sums of all."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.metrics import neighbours, talkers
from analysis.metrics.headroom import COUNTED
from analysis.metrics.period import Period
from analysis.metrics.rates import RATED
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
from analysis.table import hashes
from analysis.table.arrays import added, folded, ints, ranked, together, with_columns
from analysis.table.parts import Parts
from analysis.table.schema import COUNT, LIMIT, TEXT

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
_WHOLE: Final = (
    *("talkers", "loss", "rules", "capped", "addresses", "headroom", "over_time", "trend"),
    *("neighbours", "evidence", "victims"),
)
"""Tables that are read as they are."""
_WHO: Final = ("user", "client_id", "broker", "kind", "rule")

_MUTED: Final = pa.schema(
    [("user", TEXT), ("client_id", TEXT), ("broker", pa.int32()), ("kind", TEXT), ("rule", TEXT), ("muted_ms", COUNT)]
)
_BILLED: Final = pa.schema([("user", TEXT), *((sku, COUNT) for sku in RATED), ("cost", LIMIT)])

Tables = Mapping[str, Parts]
Row = Mapping[str, Any]


def summarize(tables: Tables, period: Period, choices: ReportChoices, place: str) -> ReportFindings:
    """Return what a page shows of the tables; ``place`` is where they are."""
    whole = {name: tables[name].whole() for name in _WHOLE}
    daily = days(tables["headroom_days"], period)
    return ReportFindings(
        clusters=sorted(whole["talkers"]["cluster"].unique().to_pylist()),
        begin=period.begin,
        end=period.end,
        modes=period.modes,
        step_s=period.step_s,
        steps=period.steps(),
        gap_ms=choices.gap_ms,
        instances=period.instances,
        brokers=period.brokers,
        tables=place,
        totals=_totals(whole, len(tables["episodes"]), period),
        loss=missing.summarize(whole["loss"], period),
        throttled=_throttled(tables["muted"], period),
        episodes=_episodes(tables["episodes"]),
        rules=_rules(whole["rules"], whole["capped"]),
        connected=_connected(whole["addresses"]),
        headroom=_headroom(whole["headroom"]),
        talkers=_talkers(whole["talkers"]),
        series=_series(whole["over_time"], period),
        neighbours=coinciding.found(whole),
        neighbours_since=period.last_dates(neighbours.DATES).begin,
        compared=coinciding.compared(whole["neighbours"]),
        trends=_trends(whole["trend"], daily),
        days=len(pc.unique(daily["date"])),
        charges=_charges(tables["chargeback"]),
        currency=choices.rates.currency,
    )


def _totals(whole: Mapping[str, pa.Table], episodes: int, period: Period) -> PeriodTotals:
    talkers_, headroom, came = (whole[name] for name in ("talkers", "headroom", "addresses"))
    named = np.asarray(talkers_["user"].is_valid())
    muted = talkers.muted_ms(talkers_)
    return PeriodTotals(
        rows=period.rows,
        episodes=episodes,
        clients=int(named.sum()),
        throttled=int((named & (muted > 0)).sum()),
        muted_ms=int(muted.sum()),
        refused=_sum(talkers_, "connections_refused"),
        **{name: _sum(talkers_, name) for name in ("bytes_in", "bytes_out", "requests")},
        counters=_count(pc.greater(headroom["max"], 0)),
        close=_count(pc.greater_equal(headroom["p99"], CLOSE)),
        attempts=_sum(came, "connection_attempts"),
        attempts_refused=_sum(came, "connection_throttled"),
    )


def _sum(table: pa.Table, name: str) -> int:
    return int(ints(table, name).sum())


def _count(flags: pa.ChunkedArray) -> int:
    return int(pc.sum(flags).as_py() or 0)


def _throttled(muted: Parts, period: Period) -> list[Throttled]:
    """Return the clients that were muted longest, with the share of each step."""
    sum_ms = partial(added, keys=_WHO, how={"muted_ms": "sum"})
    sums = together(folded(map(sum_ms, muted.tables(_MUTED.names)), sum_ms), _MUTED)
    worst = ranked(sums, ["muted_ms"], _WHO, _THROTTLED)
    sums_ms = np.zeros((len(worst), len(period.steps())), dtype=np.int64)
    first_s = int(period.steps()[0].timestamp())
    for table in muted.tables([*_MUTED.names, "begin_ms"]) if len(worst) else ():
        at = hashes.places(table, worst, _WHO)
        step = (ints(table, "begin_ms") // 1000 - first_s) // period.step_s
        np.add.at(sums_ms, (at[at >= 0], step[at >= 0]), ints(table, "muted_ms")[at >= 0])
    # Of a client on several proxy instances the sum may be more than the step.
    series = np.minimum(sums_ms / 1000 / period.step_s, 1.0).tolist()
    return [
        Throttled(**{**row, "rule": row["rule"] or ""}, shares=of_row)
        for row, of_row in zip(worst.to_pylist(), series, strict=True)
    ]


def _numbered(period: Period) -> dict[int, int]:
    """Return the number of each step by its begin in Unix seconds."""
    return {int(step.timestamp()): number for number, step in enumerate(period.steps())}


def _episodes(episodes: Parts) -> list[Episode]:
    names = [*_WHO, *("mode", "begin", "end", "muted_ms", "throttled", "limit")]
    return [Episode(**row) for row in _most(episodes, names, ["muted_ms"], ["begin", *_WHO], _EPISODES)]


def _most(table: Parts, names: Sequence[str], most: Sequence[str], order: Sequence[str], count: int) -> list[Row]:
    """Return the first rows of a table that may be large (``arrays.ranked``)."""

    def first(rows: pa.Table) -> pa.Table:
        return ranked(rows, most, order, count)

    found = folded(map(first, table.tables(names)), first)
    return [row for each in found for row in each.to_pylist()]


def _rules(rules: pa.Table, capped: pa.Table) -> list[OfRule]:
    order = [("kind", "ascending"), ("muted_ms", "descending"), ("used", "descending")]
    order += [(name, "ascending") for name in ("rule", "exempt", "shadow", "mode")]
    client = ("kind", "rule", "mode", "user", "client_id")
    used = ranked(added(capped, client, {"used": "sum", "muted_ms": "sum"}), ["used", "muted_ms"], client)
    of_cap: dict[tuple[str, str, str], list[Row]] = {}
    for each in used.to_pylist():
        of_cap.setdefault((each["kind"], each["rule"], each["mode"]), []).append(each)
    names = [name for name in OfRule.__slots__ if name not in {"clients", "most"}]
    return [
        OfRule(
            **_of(row, *names),
            clients=len(under),
            most=[UnderCap(**_of(each, *UnderCap.__slots__)) for each in under[:_UNDER_CAP]],
        )
        for row in rules.sort_by(order).slice(0, _RULES).to_pylist()
        for under in [of_cap.get((row["kind"], row["rule"], row["mode"]), [])]
    ]


def _connected(addresses: pa.Table) -> list[Connected]:
    most = ("accept_waits", "connection_throttled", "connection_attempts")
    names = {"connection_attempts": "attempts", "connection_throttled": "refused", "connection_muted_ms": "held_ms"}
    names |= {"connection_rule": "rule", "connection_limit": "limit"}
    names |= {"accept_waits": "waits", "accept_wait_ms": "wait_ms"}
    found = ranked(addresses, most, ("ip", "listener"), _CONNECTED)
    renamed = found.rename_columns([names.get(name, name) for name in found.column_names])
    return [Connected(**_of(row, *Connected.__slots__)) for row in renamed.to_pylist()]


def _headroom(headroom: pa.Table) -> list[Headroom]:
    used = headroom.filter(pc.greater(headroom["max"], 0))
    closest = ranked(used, ["p99", "max"], ["unit_user", "unit_client_id"], _HEADROOM)
    return [Headroom(**_of(row, *Headroom.__slots__)) for row in closest.to_pylist()]


def _talkers(found: pa.Table) -> list[Talker]:
    return [Talker(**_of(row, *Talker.__slots__)) for row in talkers.top(found, _TALKERS).to_pylist()]


def _series(over_time: pa.Table, period: Period) -> list[RateSeries]:
    order = _numbered(period)
    labels: dict[int, str | None] = {talkers.OTHERS: None}
    layers: dict[int, list[float]] = {}
    for cell in over_time.to_pylist():
        place = cell["place"]
        if place != talkers.OTHERS:
            labels[place] = words.client(cell["user"], cell["client_id"])
        layers.setdefault(place, [0.0] * len(order))[order[cell["step_s"]]] += cell["bytes_in"] + cell["bytes_out"]
    others = layers.pop(talkers.OTHERS, [])
    named = [RateSeries(labels[place], layers[place]) for place in sorted(layers)]
    return [*named, RateSeries(None, others)] if named and any(others) else named


def _trends(trend: pa.Table, daily: pa.Table) -> list[Trend]:
    """Return those that meet their limit first, then the steepest; ``daily`` is what they were made of."""
    known = trend.filter(pc.not_equal(trend["verdict"], "not enough data"))
    is_met = pc.equal(known["verdict"], "at its limit").cast(COUNT)
    ordered = with_columns(known, {"is_met": is_met, "not_steep": pc.negate(pc.abs(known["slope_per_day"]))})
    nearest = ranked(ordered, ["is_met"], ["days_left", "not_steep", "counter"], _TRENDS)
    points: list[list[tuple[int, float]]] = [[] for _ in range(len(nearest))]
    at = hashes.places(daily, nearest, COUNTED)
    for place, row in zip(at[at >= 0].tolist(), daily.filter(pa.array(at >= 0)).to_pylist(), strict=True):
        points[place].append((row["day"], row["p99"]))
    names = [name for name in Trend.__slots__ if name != "points"]
    return [
        Trend(**_of(row, *names), points=sorted(mine)) for row, mine in zip(nearest.to_pylist(), points, strict=True)
    ]


def _charges(chargeback: Parts) -> list[Charge]:
    how = {**dict.fromkeys(RATED, "sum"), "cost": "sum"}
    add_up = partial(added, keys=("user",), how=how)
    users = together(folded(map(_billed, chargeback.tables()), add_up), _BILLED)
    moved = with_columns(users, {"moved": pc.add(users["bytes_in"], users["bytes_out"])})
    most = ranked(moved, ["cost", "moved"], ["user"], _CHARGES)
    return [Charge(**_of(row, *Charge.__slots__)) for row in most.to_pylist()]


def _billed(lines: pa.Table) -> pa.Table:
    of_sku = {sku: pc.if_else(pc.equal(lines["SkuId"], sku), lines["ConsumedQuantity"], 0) for sku in RATED}
    return pa.table({"user": lines["SubAccountId"], **of_sku, "cost": lines["EffectiveCost"]})


def _of(row: Row, *names: str) -> dict[str, Any]:
    return {name: row[name] for name in names}
