"""The page of a report: one self-contained HTML file, made from the report's tables."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from markupsafe import Markup

from analysis.client_filter import ClientFilter
from analysis.page import draw, html, words
from analysis.report.tables import Row, Span, rows
from analysis.warehouse import Period
from quotas import texts
from quotas.kinds import CLIENT_KINDS

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_CAUSED: Final = """SELECT *, coalesce(bool_or(NOT is_itself) OVER (
    PARTITION BY counter, victim_user, victim_client_id), false) AS by_others FROM caused QUALIFY by_others"""
"""The causes of mutes of clients that were not alone in causing them."""
_SHOWN: Final = 100
"""The most rows of a table on the page; files have all."""
_BARS: Final = 40
_FAULTS: Final = 20
_PLOTS: Final = 12
_MOST_ROOM: Final = 20
"""A limit is a line in a plot if at most so many times the highest use."""


@dataclass(frozen=True, slots=True)
class About:
    """A report's period, zone and client, and notes for the reader."""

    span: Span
    period: Period
    zone: ZoneInfo
    client: ClientFilter | None
    notes: list[str]


@dataclass(frozen=True, slots=True)
class Plotted:
    """The first row of a client or counter, and the plot of all its rows."""

    first: Row
    plot: Markup


def sentence(connection: "DuckDBPyConnection", client: ClientFilter | None) -> str:
    """Return the answer in a sentence, with the share of missing documents."""
    (totals,) = rows(connection, "FROM totals")
    return f"{_answer(totals, client)}{_missing(totals)}"


def render(connection: "DuckDBPyConnection", about: About) -> str:

    def few(query: str, most: int = _SHOWN) -> list[Row]:
        return rows(connection, f"{query} LIMIT {most}")

    def count(table: str) -> int:
        return int(rows(connection, f"SELECT count(*) AS n FROM {table}")[0]["n"])

    (totals,) = few("FROM totals")
    tables = {row["name"] for row in rows(connection, "SELECT table_name AS name FROM duckdb_tables()")}
    compared, own = "compared_clients" in tables, about.client is not None
    steps = _Steps(about)
    clusters = ", ".join(texts.shown(each) for each in totals["clusters"])
    local = partial(datetime.astimezone, tz=about.zone)
    title = f"{clusters}: {words.from_to(local(about.span.begin), local(about.span.end))} {about.zone.key}"
    content = {
        "title": title,
        "about": about,
        "of_address": about.client is not None and about.client.is_address,
        "answer": _answer(totals, about.client),
        "missing_said": _missing(totals),
        "totals": totals,
        "client_of": _client if own else _linked,
        "counter_of": words.counter,
        "used": _used,
        "axis": steps.axis,
        "muted": list(steps.strips(few("FROM muted_steps ORDER BY in_all_ms DESC, rule, at_s", 20 * 400))),
        "episodes": few("FROM episodes ORDER BY muted_ms DESC, begin"),
        "caused": few(f"{_CAUSED} ORDER BY caused_ms DESC, counter, victim_user, victim_client_id"),
        "headroom": few("FROM headroom WHERE max > 0 ORDER BY p99 DESC, max DESC, counter", _BARS),
        "bar": _bar,
        "rules": few("FROM rules WHERE rule IS NOT NULL OR exempt OR role = 'shadow'", 200),
        "addresses": few("FROM addresses WHERE attempts > 0 OR waits > 0 ORDER BY refused DESC, attempts DESC, ip"),
        "talkers": few('FROM talkers WHERE "user" IS NOT NULL ORDER BY bytes_in + bytes_out DESC, "user", client_id'),
        "flow": steps.stack(rows(connection, "FROM over_time")),
        "trends": few("FROM trend WHERE verdict IN ('rising', 'at its limit', 'far', 'falling')"),
        "charges": few(
            "SELECT SubAccountId AS \"user\", sum(ConsumedQuantity) FILTER (SkuId = 'bytes_in') AS bytes_in, "
            "sum(ConsumedQuantity) FILTER (SkuId = 'bytes_out') AS bytes_out, "
            "sum(ConsumedQuantity) FILTER (SkuId = 'requests') AS requests, sum(BilledCost) AS cost, "
            "any_value(BillingCurrency) AS currency FROM chargeback GROUP BY SubAccountId "
            "ORDER BY cost DESC NULLS LAST, bytes_in + bytes_out DESC, SubAccountId"
        ),
        "loss": few("FROM loss WHERE missing > 0 OR dropped > 0 OR late > 0 ORDER BY missing DESC, dropped DESC, hour"),
        "rejected": few("FROM main.rejected", _FAULTS) if "rejected" in tables else [],
        "compared": compared,
        "changes": few("FROM compared_clients ORDER BY abs(bytes - bytes_before) DESC") if compared else [],
        "limit_changes": few("FROM compared_limits ORDER BY abs(p99 - p99_before) DESC") if compared else [],
        "quota_changes": few(
            "FROM compared_quotas WHERE (least_limit, most_limit) "
            "IS DISTINCT FROM (least_limit_before, most_limit_before)"
        )
        if compared
        else [],
        "uses": list(steps.uses(few("FROM client_use ORDER BY in_all DESC NULLS LAST, counter, at_s", 100_000)))
        if own
        else [],
        "company": few("FROM company ORDER BY caused_ms DESC NULLS LAST, used DESC NULLS LAST") if own else [],
        "sizes": {table: count(table) for table in ("episodes", "headroom", "talkers")}
        | {"caused": count(f"({_CAUSED})")},
    }
    return html.page(
        "report/report.html.j2",
        content,
        in_shell=shlex.quote,
        when=lambda moment: words.moment(local(moment)),
        limit_or_none=lambda most, kind: "no limit" if most is None else texts.amount(most, kind),
    )


class _Steps:
    """Draws plots over the steps of a period."""

    def __init__(self, about: About) -> None:
        self._zone, self._step_s = about.zone, about.span.step_s
        self._first = int(about.span.begin.timestamp()) // self._step_s
        self._count = int(about.span.end.timestamp()) // self._step_s - self._first + 1
        times = (self._time(self._first * self._step_s), self._time((self._first + self._count) * self._step_s))
        self.axis = draw.ticks(*times)

    def strips(self, found: Iterable[Row]) -> Iterable[Plotted]:
        keys = ("cluster", "user", "client_id", "broker", "kind", "rule")
        for first, some in _apart(found, keys):
            shares = self._values(some, "share")
            times = [self._time((self._first + step) * self._step_s) for step in range(self._count)]
            yield Plotted(first, draw.strip(shares, times, self._step_s))

    def stack(self, found: Iterable[Row]) -> dict[str, Any] | None:
        clients = [(first, some) for first, some in _apart(sorted(found, key=lambda each: each["place"]), ("place",))]
        if not clients:
            return None
        clients.sort(key=lambda each: each[0]["place"] % 1000)  # all others, -1, on top
        layers = [
            [(bytes_in + bytes_out) / self._step_s for bytes_in, bytes_out in zip(*sides, strict=True)]
            for sides in ((self._values(some, "bytes_in"), self._values(some, "bytes_out")) for _, some in clients)
        ]
        top = draw.round_up(max(map(sum, zip(*layers, strict=True))), 1024)
        who = [
            (
                number if first["place"] >= 0 else draw.SERIES,
                "all others" if first["place"] < 0 else words.client(first["user"], first["client_id"]),
            )
            for number, (first, _) in enumerate(clients)
        ]
        times = [self._time((self._first + step) * self._step_s) for step in range(self._count + 1)]
        tips = _tips(times, layers, [texts.shortened(said) for _, said in who], "produce")
        return {"plot": draw.stack(layers, top, tips), "top": top, "who": who}

    def uses(self, found: Iterable[Row]) -> Iterable[dict[str, Any]]:
        """Yield a plot by hour for each of the counters that a client used most."""
        for first, some in list(_apart(found, ("counter",)))[:_PLOTS]:
            begin, end = some[0]["at_s"] // 3600, some[-1]["at_s"] // 3600
            hours = [0.0] * (end - begin + 1)
            others = [0.0] * len(hours)
            for row in some:
                place = row["at_s"] // 3600 - begin
                hours[place] = (row["used"] or 0) * row["per_used"] / 3600
                others[place] = max(row["used_by_all"] * row["per_used"] / 3600 - hours[place], 0)
            most = max(mine + rest for mine, rest in zip(hours, others, strict=True))
            line = {row["at_s"] // 3600 - begin: row["most_limit"] for row in some if row["most_limit"] is not None}
            highest = max(line.values(), default=0)
            top = draw.round_up(highest if most < highest <= _MOST_ROOM * most else most, 1024)
            times = [self._time((begin + hour) * 3600) for hour in range(len(hours) + 1)]
            tips = _tips(times, [hours, others], ["this client", "others"], first["kind"], line)
            limits = [row for number, row in enumerate(some) if not number or _limits(row) != _limits(some[number - 1])]
            yield {
                "first": first,
                "plot": draw.stack([hours, others], top, tips, line),
                "axis": draw.ticks(times[0], times[-1]),
                "top": top,
                "muted_ms": sum(row["muted_ms"] or 0 for row in some),
                "limits": [{**row, "at": datetime.fromtimestamp(row["at_s"], UTC)} for row in limits],
            }

    def _values(self, some: Iterable[Row], name: str) -> list[float]:
        values = [0.0] * self._count
        for row in some:
            if 0 <= (step := row["at_s"] // self._step_s - self._first) < self._count:
                values[step] += float(row[name])
        return values

    def _time(self, unix_s: float) -> datetime:
        return datetime.fromtimestamp(unix_s, self._zone)


def _tips(
    times: Sequence[datetime],
    layers: list[list[float]],
    who: list[str],
    kind: str,
    limits: Mapping[int, float] = MappingProxyType({}),
) -> list[str]:
    """Return the rates of each step between ``times``, the highest first, and its limit."""
    tips = []
    for step, rates in enumerate(zip(*layers, strict=True)):
        said = sorted(((rate, each) for rate, each in zip(rates, who, strict=True) if rate), reverse=True)
        lines = [f"{each}: {texts.amount(rate, kind)}" for rate, each in said]
        lines += [f"limit: {texts.amount(limits[step], kind)}"] if step in limits else []
        tips.append("\n".join([words.from_to(times[step], times[step + 1]), *lines]))
    return tips


def _limits(row: Row) -> tuple[float | None, float | None]:
    return row["least_limit"], row["most_limit"]


def _apart(found: Iterable[Row], keys: tuple[str, ...]) -> Iterable[tuple[Row, list[Row]]]:
    """Group rows by keys, in order of appearance; yield the first row and all rows of each group."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in found:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    for group in groups.values():
        yield group[0], group


def _bar(row: Row) -> Markup:
    return draw.bar(row["p50"], row["p95"], row["p99"], row["max"], 1.25)


def _used(kind: str, used: float) -> str:
    """Return usage in the kind's unit in usage records."""
    unit = words.unit_used(kind)
    return texts.size(used) if unit == "bytes" else f"{texts.count(used)} {unit}"


def _client(user: str | None, client_id: str | None) -> Markup:
    return html.name(words.client(user, client_id))


def _linked(user: str | None, client_id: str | None) -> Markup:
    """Return a client, with the directories of its own reports: ``links`` makes it a link if there is one."""
    if user is None:
        return _client(user, client_id)
    filters = (ClientFilter({"user": user, "client_id": client_id or ""}), ClientFilter({"user": user}))
    return Markup('<a data-of="{}">{}</a>').format(
        " ".join(each.folder() for each in filters), _client(user, client_id)
    )


def _answer(totals: Row, client: ClientFilter | None) -> str:
    """Return who was throttled, and by quotas of which kinds; connections are counted by address, and not by client."""
    shadow = set(totals["modes"]) == {"shadow"}
    was = "would have been" if shadow else "was"
    connections = _connections(totals, "would have been" if shadow else "were")
    who = "" if client is None else texts.shown(client.describe())
    if client is not None and client.is_address:
        return f"{who}: {connections}"
    if not totals["throttled"]:
        nobody = f"{who} {'would not have been' if shadow else 'was not'}" if who else f"No client {was}"
        said = f"{nobody} throttled while {words.any_of([kind.row.doing for kind in CLIENT_KINDS])}."
    else:
        clients = f"{totals['throttled']:,} of {words.counted(totals['clients'], 'client')}"
        were = was if who or shadow or totals["throttled"] == 1 else "were"
        kinds = ", ".join(words.doing(kind) for kind in totals["muted_kinds"])
        muted = f"for {texts.duration_of_ms(float(totals['muted_ms']))} ({kinds}) in all."
        said = f"{who} {was} throttled {muted}" if who else f"{clients} {were} throttled, {muted}"
    return f"{said} {connections}" if totals["refused_for_rate"] else said


def _connections(totals: Row, were: str) -> str:
    attempts = words.counted(int(totals["attempts"]), "connection")
    return f"{int(totals['refused_for_rate']):,} of {attempts} {were} refused for their rate."


def _missing(totals: Row) -> str:
    missing = int(totals["missing"])
    if not missing:
        return ""
    expected = missing + int(totals["documents"])
    return f" {missing:,} of {words.counted(expected, 'document')} ({texts.share(missing / expected)}) missing."
