"""What the client used of each limit over time, how close it came, and what other limits would have done."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, Final

from analysis.client import plots
from analysis.client.counters import Panel
from analysis.client.findings import ClientFindings
from analysis.client.sections import used
from analysis.client.tables import held_at, step_times
from analysis.page import draw, words
from analysis.page.html import Cell, empty, key, line, rule, section, table, whose
from analysis.whatif import comparison
from quotas.kinds import BYTES, QuotaKind

_SHOWN: Final = 9
"""Counters of a kind, the first of them large."""
_STRIP: Final = 180
_CHANGES: Final = 20
_KINDS: Final = {kind.row.word: kind for kind in QuotaKind}


def kinds(found: ClientFindings) -> str:
    """Draw the counters of each kind, those of caps behind those of quotas."""
    title = "What it used, and its limits"
    drawn = [panel for panel in found.panels if panel.number in found.courses]
    if not drawn:
        return empty("limits", title, "Nothing that a quota could hold.")
    parts = []
    for word, kind in _KINDS.items():
        for cap in (False, True):
            mine = [panel for panel in drawn if panel.last.kind == word and panel.last.cap is cap]
            if mine:
                of = sum(panel.last.kind == word and panel.last.cap is cap for panel in found.panels)
                parts.append(_kind(found, kind, mine[:_SHOWN], of))
    says = (
        "Each proxy instance enforces quotas by itself, and on each broker by itself: a plot is one counter, on one "
        f"broker of one proxy. A point is {words.duration(found.step_s)}; the dashed line is the limit, and its steps "
        "are changes."
    )
    legend = key(
        ("solid", "this client, the mean of a point"),
        ("half", "its most"),
        ("s0", "its least (a line)"),
        ("s8", "all who share the counter"),
        ("dash", "the limit"),
        ("heat", "throttled for part of the time &hellip; all of it"),
    )
    return section("limits", title, says, legend, *parts)


def _kind(found: ClientFindings, kind: QuotaKind, mine: Sequence[Panel], of: int) -> str:
    cap = mine[0].last.cap
    unit = kind.row.unit.rate.replace("_per_second", "/s")
    what = "caps, which hold besides" if cap else unit
    more = f"; {len(mine)} of {of:,} counters, those that held longest or were used most" if of > len(mine) else ""
    first, *others = mine
    small = "".join(_small(found, panel) for panel in others)
    return (
        f"<h3>{kind.value}: {kind.row.doing}, {what}{more}</h3>{_large(found, first)}"
        f"{f'<div class=rows>{small}</div>' if small else ''}{_changes(found, mine)}"
    )


def _where(found: ClientFindings, panel: Panel) -> str:
    last = panel.last
    broker = f"broker {last.broker}, " if last.broker >= 0 else ""
    cluster = f"{words.name(last.cluster)}, " if len(found.facts.clusters) > 1 else ""
    return f"{cluster}{broker}{words.name(last.instance)}"


def _held(found: ClientFindings, panel: Panel) -> str:
    """Return by what, in words: the rule with its limit, and who shares it."""
    course, last = found.courses[panel.number], panel.last
    limit = course.changes[-1][2]
    if last.rule is None or limit is None:
        return "no limit"
    shared = ", shared with others" if found.shared_by_others(panel) else ""
    changed = f", changed {words.counted(len(course.changes) - 1, 'time')}" if len(course.changes) > 1 else ""
    return f"{words.limit(last.kind, limit)} by {rule(last.rule)}{shared}{changed}"


def _top(found: ClientFindings, panel: Panel) -> float:
    course = found.courses[panel.number]
    limits = [limit for _, _, limit in course.changes if limit is not None]
    peak = max(float(course.most.max()), float(course.shared.max()))
    # A limit far out of reach would leave nothing to see of the use below it.
    near = [limit for limit in limits if limit <= 20 * peak]
    return draw.round_up(max([peak, *near]) * 1.05, 1024 if _KINDS[panel.last.kind].row.unit is BYTES else 1000)


def _large(found: ClientFindings, panel: Panel) -> str:
    course, top = found.courses[panel.number], _top(found, panel)
    grid = "".join(
        f'<div class=grid style="top:{100 - 100 * part / 2}%"><span>{words.limit(panel.last.kind, top * part / 2)}'
        "</span></div>"
        for part in (1, 2)
    )
    limits = [limit for _, limit in held_at(found, course)]
    shared = found.shared_by_others(panel)
    times = step_times(found)
    above = [limit for _, _, limit in course.changes if limit is not None and limit > top]
    beyond = f"; above the plot: {words.limit(panel.last.kind, max(above))}" if above else ""
    return (
        f"<p>{_where(found, panel)}: {_held(found, panel)}; used {used(panel.last.kind, panel.used)}, throttled "
        f"{words.duration(panel.muted_ms / 1000)}{beyond}</p>"
        f"<div class=plot>{plots.plot(course, limits, top, shared=shared)}{grid}</div>"
        f"{_strip(found, panel)}{draw.ticks(times[0], times[-1] + found.step)}"
    )


def _strip(found: ClientFindings, panel: Panel) -> str:
    course = found.courses[panel.number]
    if not course.muted.any():
        return ""
    times = step_times(found)
    shares = plots.strip(course.muted.tolist(), _STRIP)
    length = (times[-1] + found.step - times[0]) / len(shares)
    begins = [times[0] + length * number for number in range(len(shares))]
    return draw.strip(shares, begins, max(round(length.total_seconds()), 1))


def _small(found: ClientFindings, panel: Panel) -> str:
    course = found.courses[panel.number]
    limits = [limit for _, limit in held_at(found, course)]
    drawn = plots.plot(course, limits, _top(found, panel), shared=found.shared_by_others(panel), small=True)
    number = f"{used(panel.last.kind, panel.used)}<small>throttled {words.duration(panel.muted_ms / 1000)}</small>"
    return line(f"{_where(found, panel)}<small>{_held(found, panel)}</small>", f"{drawn}{_strip(found, panel)}", number)


def _changes(found: ClientFindings, mine: Sequence[Panel]) -> str:
    rules = {each.counter: each.rule for each in found.counters}
    rows = []
    for panel in mine:
        changes = found.courses[panel.number].changes
        if len(changes) > 1:
            rows += [(since_ms, panel, rules.get(counter), limit) for since_ms, counter, limit in changes]
    if not rows:
        return ""
    rows.sort(key=lambda row: row[0])
    heads = [("since", "UTC: the first interval under it"), ("where", ""), ("limit", ""), ("by which rule", "")]
    cells = (
        (
            Cell(words.moment(datetime.fromtimestamp(since_ms / 1000, UTC)), since_ms),
            Cell(_where(found, panel)),
            Cell("none" if limit is None else words.limit(panel.last.kind, limit), limit or 0),
            Cell(rule(name or "")),
        )
        for since_ms, panel, name, limit in rows[: _CHANGES * len(mine)]
    )
    return f"<h3>Changes of the limit</h3>{table(heads, cells)}"


def headroom(found: ClientFindings) -> str:
    title = "How close to its limits"
    mine = [panel for panel in found.panels if panel.number in found.courses and found.courses[panel.number].full]
    if not mine:
        return empty("headroom", title, "It had no limit in this period.")
    fullest = sorted(mine, key=lambda panel: -found.courses[panel.number].full[2])
    scale = min(max(1.25, *(found.courses[panel.number].full[3] for panel in mine)), 2.5)
    rows = "".join(_full(found, panel, scale) for panel in fullest[: 2 * _SHOWN])
    says = (
        "Use of the counter over the window of enforcement, as a share of the limit. While active: only the intervals "
        "in which this client used something. Of all time: idle time counts as none, as in the report of all clients."
    )
    legend = key(
        ("solid", "p50"), ("half", "p95"), ("tickmark", "p99, with a line to the maximum"), ("dash", "the limit")
    )
    return section("headroom", title, says, legend, f"<div class=rows>{rows}</div>")


def _full(found: ClientFindings, panel: Panel, scale: float) -> str:
    course = found.courses[panel.number]
    parts = []
    for values, said in ((course.full_while_active, "while active"), (course.full, "of all time")):
        if values:
            p50, p95, p99, most = values
            number = f"{words.percent(p99)}<small>p50 {words.percent(p50)}, max {words.percent(most)}</small>"
            over = f"; over it {words.percent(course.over)} of the time" if course.over else ""
            share = f" ({words.percent(course.active)} of it)" if said == "while active" else ""
            rest = f"{panel.last.kind}, {_where(found, panel)}: {_held(found, panel)}{over}"
            who = whose(f"{said}{share}", rest) if said == "while active" else whose(said, "")
            parts.append(line(who, draw.bar(p50, p95, p99, most, scale), number))
    return "".join(parts)


def what_if(found: ClientFindings) -> str:
    title = "What other limits would have done"
    if found.scaled is None or not found.scaled.rows:
        return empty("whatif", title, "Nothing limited it at the end of the period, so there is nothing to scale.")
    shared = (
        " Others share a counter with it: they are replayed too, and the throttled time is that of all who share it."
        if any(found.shared_by_others(panel) for panel in found.panels if panel.number in found.courses)
        else ""
    )
    notes = "".join(f" {escape(words.plain(note))}." for note in found.scaled.notes)
    says = (
        "Its last limits times a half to four, replayed over what was recorded (docs/analysis-whatif.md); all brokers "
        f"and proxies together. Where it was throttled, what it wanted is known only between bounds.{shared}"
    )
    heads = [
        ("limit", "times the one in force at the end"),
        ("", "on one broker of one proxy"),
        ("kind", ""),
        ("before", "throttled while recorded"),
        ("after", "throttled, or between what"),
        ("delay p99", "the longest of its counters: how long bytes would wait, at least and at most"),
        ("served", "of what was recorded, within the period"),
        ("known", "exact; interval: held up while recorded; unknown: until the recording ended"),
    ]
    return section("whatif", title, says + notes, table(heads, _scaled(found.scaled.rows)))


def _scaled(rows: Sequence[Mapping[str, Any]]) -> Iterator[Sequence[Cell]]:
    together: dict[tuple[str, str | None, float], list[Mapping[str, Any]]] = {}
    for row in rows:
        together.setdefault((row["kind"], row["rule"], row["factor"]), []).append(row)
    for (kind, name, factor), mine in sorted(
        together.items(), key=lambda each: (each[0][0], each[0][1] or "", each[0][2])
    ):
        sums = {each: sum(row[each] for row in mine) for each in _ADDED}
        most = max(mine, key=lambda row: row["delay_p99_most_s"])
        known = max((row["answer"] for row in mine), key=("exact", "interval", "unknown").index)
        served = comparison.served(sums)
        yield (
            Cell(f"{factor:g} &times;", factor),
            Cell(words.limit(kind, mine[0]["limit"]), mine[0]["limit"]),
            Cell(f"{words.word(kind)} <small>{rule(name or '')}</small>"),
            Cell(words.duration(sums["before_throttled_s"]), sums["before_throttled_s"]),
            Cell(comparison.after(sums), sums["throttled_s"]),
            Cell(comparison.delay_p99(most), most["delay_p99_s"]),
            Cell(words.percent(served), served),
            Cell(known),
        )


_ADDED: Final = (
    *("before_throttled_s", "throttled_s", "throttled_least_s", "throttled_most_s", "episodes"),
    *("sent_bytes", "recorded_bytes"),
)
