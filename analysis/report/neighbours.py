"""Noisy neighbours on the page: what coincides, beside what was to be expected, and how it goes together in time."""

from collections.abc import Sequence
from typing import Final

from analysis.metrics.broker_moments import MOMENT_S, PEAK_OVER_AVERAGE, PEAK_SHARE
from analysis.metrics.coincidence import LEAST_BURSTS, LEVEL
from analysis.metrics.evidence import AFTER_S, BEFORE_S
from analysis.metrics.neighbours import DATES
from analysis.page import draw, words
from analysis.page.html import empty, key, whose
from analysis.page.html import section as section_of
from analysis.report.findings import Neighbour, ReportFindings, Victim

_TOGETHER: Final = 5
_WHAT: Final = {"muted_ms": "muted time", "request_time_ms": "waiting for answers"}


def section(found: ReportFindings) -> str:
    title = "Noisy neighbours"
    if not found.compared:
        why = (
            f"No client could be compared: none peaked {LEAST_BURSTS} times while others were there to be delayed, or "
            "nobody was delayed at all."
        )
        return empty("neighbours", title, _since(found) + why)
    of_how_many = words.counted(found.compared, "client")
    if not found.neighbours:
        why = (
            f"Nothing beyond chance: of {of_how_many} that peaked often enough to be compared, nobody's peaks coincide "
            "with others' delays more than the hours and others' own activity explain."
        )
        return empty("neighbours", title, _since(found) + why)
    says = _since(found) + (
        f"Whose peaks coincide with others' delays, of {of_how_many} that could be compared. A client peaks in "
        f"{MOMENT_S} s in which it moves {PEAK_OVER_AVERAGE:g} times its own average, and {words.percent(PEAK_SHARE)} "
        "of its broker's bytes. The bar is the part of others' delay in its peaks; the mark is what was expected, by "
        "what those that were active did themselves, within the same hour. p is how often chance alone would "
        f"name anybody; up to {LEVEL:g} are shown. <b>It says what coincides, not what causes it</b>: where to look "
        "first."
    )
    if found.shadow:
        says += " Mutes are those that would have been."
    legend = key(
        ("s0", "its own bytes per second"),
        ("stroke", "others' delay"),
        ("dash", "expected by their own use"),
    )
    cards = "".join(map(_card, found.neighbours))
    return section_of("neighbours", title, says, legend, f"<div class=cards>{cards}</div>")


def _since(found: ReportFindings) -> str:
    since = found.neighbours_since
    return f"From {since:%Y-%m-%d} on, the last {DATES} days of the period. " if since and since > found.begin else ""


def _card(each: Neighbour) -> str:
    who = whose(
        words.client(each.user, each.client_id),
        f"broker {each.broker}, {words.percent(each.share_of_bytes)} of its bytes",
    )
    where = f"came {each.lag_s} s after its peaks" if each.lag_s else "was in its peaks"
    chance = "p &lt; 0.001" if each.p_adjusted < 0.001 else f"p = {each.p_adjusted:.3f}"
    bounds = f"{words.percent(max(each.low, 0))} to {words.percent(each.high)}"
    said = (
        f"<b>{words.percent(each.coincidence)}</b> of others' {_WHAT[each.measure]} "
        f"({words.duration(each.others_in_peaks_ms / 1000)}) {where}, in {words.counted(each.bursts, 'burst')}; "
        f"{words.percent(each.expected)} was to be expected. {words.percent(each.score)} more, {bounds} (95 %), "
        f"{chance}."
    )
    if each.measure == "request_time_ms" and each.others_requests_in_peaks:
        took, usual = (ms / each.others_requests_in_peaks for ms in (each.others_in_peaks_ms, each.others_expected_ms))
        said += f" Others' requests took {took:.1f} ms then, for {usual:.1f} ms expected."
    return (
        f"<div class=card><div class=who>{who}</div>{draw.share_bar(each.coincidence, each.expected, 'warm')}"
        f"<p>{said}</p>{_plot(each)}{_delayed(each.victims)}{_alike(each.together)}</div>"
    )


def _plot(each: Neighbour) -> str:
    bytes_ = [point.bytes_per_s for point in each.around]
    had, expected = [point.others_ms for point in each.around], [point.expected_ms for point in each.around]
    begins = sum(point.offset_s < 0 for point in each.around)
    marks = ((-BEFORE_S, f"{BEFORE_S // 60} min before"), (0, "burst begins"), (AFTER_S, f"{AFTER_S // 60} min after"))
    ticks = "".join(
        f'<span class=tick style="left:{100 * (at + BEFORE_S) / (BEFORE_S + AFTER_S):.2f}%">{text}</span>'
        for at, text in marks
    )
    top = max((*had, *expected))
    return (
        f"{draw.event(bytes_, had, expected, begins)}<div class=axis aria-hidden=true>{ticks}</div>"
        f"<p>On average over its bursts: up to {words.rate(max(bytes_))} of its own, and up to "
        f"{words.duration(top / 1000)} of others' delay in each second.</p>"
    )


def _delayed(victims: Sequence[Victim]) -> str:
    if not victims:
        return ""
    said = ", ".join(
        f"{words.name(words.client(victim.user, victim.client_id), 30)} ({words.duration(victim.delay_ms / 1000)}"
        f"{', on the same limit' if victim.shared else ''})"
        for victim in victims
    )
    return f"<p>Delayed then: {said}.</p>"


def _alike(together: Sequence[tuple[str | None, str | None]]) -> str:
    if not together:
        return ""
    said = ", ".join(words.name(words.client(*each), 30) for each in together[:_TOGETHER])
    more = len(together) - _TOGETHER
    said += f" and {more} more" if more > 0 else ""
    return f"<p>Peaks together with {said}: outside of its own peaks nothing speaks for these.</p>"
