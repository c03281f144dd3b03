"""The sections of the page: each is HTML from findings, and says why where it has nothing to show."""

from datetime import date

from analysis.metrics.trend import LEAST_DAYS
from analysis.page import draw, words
from analysis.page.html import Cell, empty, key, line, rule, section, table, whose
from analysis.report.findings import Headroom, ReportFindings, Trend

_EPOCH = date(1970, 1, 1).toordinal()


def throttled(found: ReportFindings) -> str:
    title = "Who was throttled" if not found.shadow else "Who would have been throttled"
    if not found.throttled:
        return empty("throttled", title, "Nobody: in this period no connection was muted, and no answer held back.")
    totals = found.totals
    rows = [
        line(
            whose(
                words.client(each.user, each.client_id),
                f"{words.doing(each.kind)} on broker {each.broker}, by {rule(each.rule)}",
            ),
            draw.strip(each.shares, found.steps, found.step_s),
            f"{words.duration(each.muted_ms / 1000)}<small>muted</small>",
        )
        for each in found.throttled
    ]
    axis = line("", draw.ticks(found.steps[0], found.steps_end), "", ends=True)
    says = (
        f"<b>{words.counted(totals.throttled, 'client')}</b> of {totals.clients:,}, in "
        f"<b>{words.counted(totals.episodes, 'episode')}</b>. The darker, the larger the share of the time in which at "
        "least one connection was muted. Worst first; times are "
        f"{words.ZONE}."
    )
    legend = key(("heat", "muted for part of the time &hellip; all of it"))
    return section("throttled", title, says, legend, f"<div class=rows>{''.join(rows)}{axis}</div>", _episodes(found))


def _episodes(found: ReportFindings) -> str:
    heads = [
        ("client", "user / client-id"),
        ("by which rule", "the quota that was exceeded"),
        ("limit", "the lowest that was in force, on one broker"),
        ("broker", "node id"),
        ("from", "when its first muted interval began"),
        ("lasted", "from its first muted interval to the end of its last"),
        ("muted", "time in which at least one connection was muted; instances of the proxy are added"),
        ("requests", "that were given a throttle time"),
    ]
    rows = (
        (
            Cell(words.name(words.client(each.user, each.client_id))),
            Cell(f"{rule(each.rule)} <small>{each.kind}{_unless_enforced(each.mode)}</small>"),
            Cell(words.limit(each.kind, each.limit) if each.limit else "&ndash;", each.limit or 0),
            Cell(str(each.broker), each.broker),
            Cell(words.when(each.begin), each.begin.timestamp()),
            Cell(words.duration((each.end - each.begin).total_seconds()), (each.end - each.begin).total_seconds()),
            Cell(words.duration(each.muted_ms / 1000), each.muted_ms),
            Cell(words.count(each.throttled), each.throttled),
        )
        for each in found.episodes
    )
    shown, all_of_them = len(found.episodes), found.totals.episodes
    which = "All episodes" if shown == all_of_them else f"The {shown} longest of {all_of_them:,} episodes"
    joined = f"gaps up to {words.duration(found.gap_ms / 1000)} are joined"
    return f"<h3>{which} ({joined})</h3>{table(heads, rows)}{_search(found)}"


def _search(found: ReportFindings) -> str:
    """Where the script puts the search over all episodes; without it, it says where they are."""
    if not found.totals.episodes:
        return ""
    total = words.counted(found.totals.episodes, "episode")
    return f'<div class=search data-of="{total}"><p class=says>All {total} are in the table episodes.</p></div>'


def _unless_enforced(mode: str) -> str:
    return "" if mode == "enforce" else f", {words.name(mode)}"


def headroom(found: ReportFindings) -> str:
    title = "How close to the limits"
    if not found.headroom:
        return empty("headroom", title, "No client that was active in this period had a limit.")
    scale = min(max(1.25, *(each.max for each in found.headroom)), 2.5)
    rows = [_use(each, scale) for each in found.headroom]
    shown = len(found.headroom)
    which = "" if shown == found.totals.counters else f" The {shown} closest of {found.totals.counters:,} are shown."
    says = (
        f"<b>{found.totals.close:,}</b> of {words.counted(found.totals.counters, 'limit')} at 90 % or more in the p99. "
        "Use over the window of enforcement, as a share of the limit: of all time, where idle time counts as none, and "
        "while active, of the intervals with any use alone. A limit is one counter, on one broker and one proxy "
        f"instance.{which}"
    )
    legend = key(
        ("solid", "p50"), ("half", "p95"), ("tickmark", "p99, with a line to the maximum"), ("dash", "the limit")
    )
    return section("headroom", title, says, legend, f"<div class=rows>{''.join(rows)}</div>")


def _use(each: Headroom, scale: float) -> str:
    where = f"{each.kind} {_on(each.broker)}, {words.name(each.instance)}"
    over = f"; over it {words.percent(each.over)} of the time" if each.over else ""
    if each.active < 1 and each.active_p50 is not None and each.active_p99 is not None:
        over += (
            f"; active {words.percent(each.active)} of the time, and then p50 {words.percent(each.active_p50)}, "
            f"p99 {words.percent(each.active_p99)}"
        )
    return line(
        whose(
            words.counter(each.unit_user, each.unit_client_id),
            f"{where}: {words.limit(each.kind, each.limit)} by {rule(each.rule)}{over}",
        ),
        draw.bar(each.p50, each.p95, each.p99, each.max, scale),
        f"{words.percent(each.p99)}<small>p50 {words.percent(each.p50)}, max {words.percent(each.max)}</small>",
    )


def _on(broker: int) -> str:
    return f"on broker {broker}" if broker >= 0 else "on all brokers"


def talkers(found: ReportFindings) -> str:
    title = "Who moves most"
    moved = found.totals.bytes_in + found.totals.bytes_out
    if not moved:
        return empty("talkers", title, "No client moved a byte in this period.")
    layers = [each.values for each in found.series]
    most = max(map(sum, zip(*layers, strict=True)))
    top = draw.round_up(most / found.step_s, 1024)
    grid = "".join(
        f'<div class=grid style="top:{100 - 100 * part / 2}%"><span>{words.rate(top * part / 2)}</span></div>'
        for part in (1, 2)
    )
    legend = key(
        *(
            (f"s{min(number, draw.SERIES)}", words.name(each.label) if each.label is not None else "all others")
            for number, each in enumerate(found.series)
        )
    )
    axis = draw.ticks(found.steps[0], found.steps_end)
    plot = f"<div class=plot>{draw.stack(layers, top * found.step_s)}{grid}</div>{axis}"
    heads = [
        ("client", "user / client-id, over all brokers"),
        ("share", "of all bytes"),
        ("in", "bytes to brokers"),
        ("out", "bytes from brokers"),
        ("requests", ""),
    ]
    rows = (
        (
            Cell(words.name(words.client(each.user, each.client_id))),
            Cell(words.percent((each.bytes_in + each.bytes_out) / moved), (each.bytes_in + each.bytes_out) / moved),
            Cell(words.size(each.bytes_in), each.bytes_in),
            Cell(words.size(each.bytes_out), each.bytes_out),
            Cell(words.count(each.requests), each.requests),
        )
        for each in found.talkers
    )
    says = (
        f"<b>{words.size(found.totals.bytes_in)}</b> in, <b>{words.size(found.totals.bytes_out)}</b> out, "
        f"<b>{words.count(found.totals.requests)}</b> requests. Bytes in and out per second, over all brokers."
    )
    return section("talkers", title, says, legend, plot, f"<h3>Top talkers</h3>{table(heads, rows)}")


def trends(found: ReportFindings) -> str:
    title = "Where it is heading"
    if found.days < LEAST_DAYS:
        enough = (
            f"Not enough data: a trend needs {LEAST_DAYS} days, and this period has {found.days} of at least half a "
            "day. Take a longer one with --from."
        )
        return empty("trend", title, enough)
    if not found.trends:
        return empty("trend", title, f"No limit was used on {LEAST_DAYS} days or more.")
    says = (
        "The daily p99 of used over limit, with a robust line through it (the median of the slopes between any two "
        "days), and when it meets the limit. Nearest first."
    )
    legend = key(("dotmark", "p99 of a day"), ("fitline", "the line through them"), ("dash", "the limit"))
    return section("trend", title, says, legend, f"<div class=cards>{''.join(map(_trend, found.trends))}</div>")


def _trend(each: Trend) -> str:
    first, last = each.points[0][0], each.points[-1][0]
    slope = each.slope_per_day or 0.0
    scale = max(1.1, *(value for _, value in each.points))
    plot = draw.course(each.points, (each.now - slope * (last - first), each.now), scale)
    said = {
        "rising": f"about {words.counted(round(each.days_left or 0), 'day')} until its limit",
        "at its limit": "at its limit",
        "far": "rising, more than a year from its limit",
        "falling": "falling",
        "level": "level",
        "unclear": "no clear direction",
        "not enough data": f"not enough data: {words.counted(each.days, 'day')}",
    }[each.verdict]
    days = f"{date.fromordinal(first + _EPOCH):%b %d} to {date.fromordinal(last + _EPOCH):%b %d}"
    where = f"{each.kind} {_on(each.broker)}, {words.name(each.instance)}, by {rule(each.rule)}"
    return (
        f"<div class=card><div class=who>{whose(words.counter(each.unit_user, each.unit_client_id), where)}</div>{plot}"
        f'<p><span class="verdict {each.verdict.split()[0]}">{said}</span>; now {words.percent(each.now)}, '
        f"{slope * 100:+.2f} points a day ({days})</p></div>"
    )


def charges(found: ReportFindings) -> str:
    title = "What each user used"
    if not found.charges:
        return empty("chargeback", title, "Nobody used anything in this period.")
    heads = [("user", ""), ("in", "bytes to brokers"), ("out", "bytes from brokers"), ("requests", "")]
    if found.currency:
        heads.append((f"cost ({found.currency})", "by the rates given"))
    rows = (
        (
            Cell(words.name(each.user)),
            Cell(words.size(each.bytes_in), each.bytes_in),
            Cell(words.size(each.bytes_out), each.bytes_out),
            Cell(words.count(each.requests), each.requests),
            *([Cell(f"{each.cost:,.2f}", each.cost)] if found.currency and each.cost is not None else []),
        )
        for each in found.charges
    )
    says = "By user and day, for a bill: chargeback.csv beside this file, with the column names of FOCUS."
    if not found.currency:
        says += " Bytes only: prices come with --rates."
    if found.loss.missing:
        says += (
            f" <b>{words.percent(1 - found.loss.share)}</b> of the records of the period are known, and charged for; "
            "x_ShareKnown in the file says it of each cluster and day."
        )
    return section("chargeback", title, says, table(heads, rows))
