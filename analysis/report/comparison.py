"""The section of the page that holds the period against another."""

from collections.abc import Iterator, Sequence
from datetime import timedelta

from analysis.metrics.comparison import GONE, NEW
from analysis.page import words
from analysis.page.html import Cell, empty, rule, section, table
from analysis.report.findings import ChangedClient, ChangedLimit, ChangedQuota, Comparison, ReportFindings

_SAME = 0.005
"""A change that is not worth a number."""


def compared(found: ReportFindings) -> str:
    """Return the section; nothing where no comparison was wanted."""
    other = found.comparison
    if other is None:
        return ""
    title = "Against the period before" if other.end <= found.begin else "Against another period"
    span = f"{words.from_to(other.begin, other.end)} UTC"
    if not other.stored:
        return empty("compared", title, f"Nothing to compare with: of {span} nothing is stored.")
    parts = [table(_HEADS, _sums(found, other))]
    if other.clients:
        clients = table(_OF_CLIENTS, (_client(each, other.scale) for each in other.clients))
        parts.append(f"<h3>Largest changes in use</h3>{clients}")
    if other.limits:
        parts.append(f"<h3>Largest changes of headroom</h3>{table(_OF_LIMITS, map(_limit, other.limits))}")
    if other.quotas:
        parts.append(f"<h3>Quotas that changed</h3>{table(_OF_QUOTAS, map(_quota, other.quotas))}")
    else:
        parts.append("<h3>No quota that was in use changed</h3>")
    return section("compared", title, f"{_says(found, other, span)} {_came(other)}", *parts)


def _says(found: ReportFindings, other: Comparison, span: str) -> str:
    said = [f"This period beside {span}."]
    if abs(other.scale - 1) > _SAME:
        longer = words.duration((other.end - other.begin) / timedelta(seconds=1))
        said.append(f"That one is {longer} long: its sums are shown for the length of this one.")
    gaps = [
        f"of {which} nothing is recorded for {words.duration(seconds)}"
        for which, seconds in (("this one", other.unrecorded_s), ("that one", other.unrecorded_before_s))
        if seconds
    ]
    if gaps:
        said.append(f"<b>Mind the gaps: {' and '.join(gaps)}</b>, so sums are of what was recorded.")
    if set(other.modes) != set(found.modes):
        said.append(f"Its mode was {', '.join(words.plain(mode) for mode in other.modes)}.")
    return " ".join(said)


_HEADS = [("", ""), ("now", ""), ("before", ""), ("change", "against before")]
_OF_CLIENTS = [
    ("client", "user / client-id, over all brokers"),
    ("bytes now", "in and out"),
    ("before", "in and out"),
    ("change", "against before"),
    ("muted now", "by any quota"),
    ("muted before", "by any quota"),
]
_OF_LIMITS = [
    ("limit", "whose, and by which rule"),
    ("used now", "p99 of used over limit"),
    ("before", "p99 of used over limit"),
    ("change", "in points"),
    ("limit now", "the last one"),
    ("limit before", "the last one"),
]
_OF_QUOTAS = [("quota", "its kind and rule"), ("now", "the last limit"), ("before", "the last limit")]


def _sums(found: ReportFindings, other: Comparison) -> Iterator[Sequence[Cell]]:
    now, before, scale = other.now, other.before, other.scale
    muted = "throttled time" if not found.shadow else "throttled time, in shadow"
    of_time = [
        (muted, now.muted_ms / 1000, scale * before.muted_ms / 1000, words.duration),
        ("bytes in", now.bytes_in, scale * before.bytes_in, words.size),
        ("bytes out", now.bytes_out, scale * before.bytes_out, words.size),
        ("requests", now.requests, scale * before.requests, words.count),
        ("connections refused", now.refused, scale * before.refused, words.count),
    ]
    for name, mine, theirs, said in of_time:
        yield (Cell(name), Cell(said(mine), mine), Cell(said(theirs), theirs), _change(mine, theirs))
    for name, here, there in (
        ("clients", now.clients, before.clients),
        ("clients throttled", now.throttled, before.throttled),
    ):
        yield (Cell(name), Cell(f"{here:,}", here), Cell(f"{there:,}", there), _change(here, there))


def _change(now: float, before: float) -> Cell:
    if not before:
        return Cell("new" if now else "&ndash;", float(2**60) if now else 0.0)
    change = now / before - 1
    if abs(change) < _SAME:
        return Cell("same", 0.0)
    return Cell(f"{now / before:,.3g} &times;" if change >= 1 else f"{100 * change:+.0f} %", change)


def _came(other: Comparison) -> str:
    said = []
    for count, names, how in ((other.new, other.new_clients, "new"), (other.gone, other.gone_clients, "gone")):
        if count:
            some = ", ".join(words.name(words.client(*each), 30) for each in names)
            more = f" and {count - len(names):,} more" if count > len(names) else ""
            said.append(f"<b>{words.counted(count, 'client')}</b> {how}: {some}{more}.")
    return " ".join(said) or "The same clients were there."


def _client(each: ChangedClient, scale: float) -> Sequence[Cell]:
    before, muted_before = scale * each.bytes_before, scale * each.muted_ms_before
    seen = f" <small>{each.seen}</small>" if each.seen in {NEW, GONE} else ""
    return (
        Cell(words.name(words.client(each.user, each.client_id)) + seen),
        Cell(words.size(each.bytes), each.bytes),
        Cell(words.size(before), before),
        _change(each.bytes, before),
        Cell(words.duration(each.muted_ms / 1000), each.muted_ms),
        Cell(words.duration(muted_before / 1000), muted_before),
    )


def _limit(each: ChangedLimit) -> Sequence[Cell]:
    name = words.name(words.counter(each.unit_user, each.unit_client_id))
    points = 100 * (each.p99 - each.p99_before)
    return (
        Cell(f"{name} <small>{each.kind} on broker {each.broker}, by {rule(each.rule)}</small>"),
        Cell(words.percent(each.p99), each.p99),
        Cell(words.percent(each.p99_before), each.p99_before),
        Cell(f"{points:+.0f}", points),
        Cell(words.limit(each.kind, each.limit), each.limit),
        Cell(words.limit(each.kind, each.limit_before), each.limit_before),
    )


def _quota(each: ChangedQuota) -> Sequence[Cell]:
    return (
        Cell(f"{rule(each.rule)} <small>{each.kind}</small>"),
        _span(each.kind, each.least_limit, each.most_limit),
        _span(each.kind, each.least_limit_before, each.most_limit_before),
    )


def _span(kind: str, least: float | None, most: float | None) -> Cell:
    if least is None or most is None:
        return Cell("not in use", -1.0)
    many = f"{words.limit(kind, least)} to " if least != most else ""
    return Cell(f"{many}{words.limit(kind, most)}", most)
