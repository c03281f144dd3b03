"""The page: an answer in a sentence, tiles, sections, and how it was made. One file, no request to anywhere."""

from datetime import datetime, timedelta
from html import escape
from typing import Final

from analysis.page import words
from analysis.page.html import document
from analysis.report import comparison, missing, neighbours, quotas, sections
from analysis.report.findings import ReportFindings

_DOCS: Final = "docs/analysis-report.md"
_USED_OVER_LIMIT: Final = (
    "what was used in the window of enforcement before the end of each interval, over what the limit allows in it"
)
_OPTION: Final = "%Y-%m-%dT%H:%M:%S"
_SOON: Final = 30
"""Days until a limit that are worth a word in the headline."""


def render(found: ReportFindings) -> str:
    """Return the HTML of a report."""
    clusters = ", ".join(words.plain(cluster) for cluster in found.clusters)
    title = f"{clusters}: {words.from_to(found.begin, found.end)} UTC"
    over = f"{escape(clusters)}: {words.between(found.begin, found.end)} {words.ZONE}"
    parts = (
        sections.throttled(found),
        comparison.compared(found),
        quotas.kinds(found),
        quotas.connections(found),
        sections.headroom(found),
        sections.talkers(found),
        neighbours.section(found),
        sections.trends(found),
        sections.charges(found),
        missing.missing(found),
    )
    return document(
        title,
        f"<header><p class=over>Sluice usage report &middot; {over}</p>"
        f"{_headline(found)}{missing.headline(found)}</header>"
        f"<main>{_tiles(found)}{''.join(parts)}{_made(found)}</main>",
        is_local=True,
        loads=True,
    )


def answer(found: ReportFindings) -> str:
    """Return, as HTML, the answer in a sentence."""
    totals = found.totals
    was = "would have been" if found.shadow else "was" if totals.throttled <= 1 else "were"
    if not totals.throttled:
        return f"<em>Nobody</em> {was} throttled."
    clients = f"{totals.throttled:,} of {words.counted(totals.clients, 'client')}"
    return f"<em>{clients}</em> {was} throttled, for {words.duration(totals.muted_ms / 1000)} in all."


def _headline(found: ReportFindings) -> str:
    css = "" if found.totals.throttled else " class=well"
    return f"<h1{css}>{answer(found)}</h1><p class=lead>{' '.join(_leads(found))}</p>"


def _leads(found: ReportFindings) -> list[str]:
    said = []
    if found.throttled:
        worst = found.throttled[0]
        who = words.name(words.client(worst.user, worst.client_id))
        how_long = words.duration(worst.muted_ms / 1000)
        said.append(f"Hardest hit: {who}, {words.doing(worst.kind)} on broker {worst.broker}, {how_long}.")
    if found.totals.close:
        verb = "runs" if found.totals.close == 1 else "run"
        said.append(f"{words.counted(found.totals.close, 'limit')} {verb} at 90 % or more.")
    elif found.headroom:
        said.append(f"No limit runs at 90 %; the closest is at {words.percent(found.headroom[0].p99)}.")
    soon = [each for each in found.trends if each.days_left is not None and each.days_left <= _SOON]
    if soon:
        next_ = soon[0]
        said.append(
            f"{words.name(words.counter(next_.unit_user, next_.unit_client_id))} reaches its limit in about "
            f"{words.counted(round(next_.days_left or 0), 'day')}."
        )
    if len(found.modes) > 1 or found.shadow:
        said.append(f"Mode: {', '.join(words.plain(mode) for mode in found.modes)}.")
    return said


def _tiles(found: ReportFindings) -> str:
    totals = found.totals
    tiles = [
        (words.duration(found.length.total_seconds()), "recorded", ""),
        (f"{totals.throttled:,} / {totals.clients:,}", "clients throttled", "hot" if totals.throttled else ""),
        (words.duration(totals.muted_ms / 1000), "muted in all", ""),
        (f"{totals.close:,} / {totals.counters:,}", "limits at 90 % or more", "hot" if totals.close else ""),
        (words.size(totals.bytes_in), "in", ""),
        (words.size(totals.bytes_out), "out", ""),
        (words.count(totals.requests), "requests", ""),
        (words.count(totals.refused), "connections refused", "hot" if totals.refused else ""),
    ]
    items = "".join(
        f'<li><strong class="{css}">{number}</strong><span>{said}</span></li>' for number, said, css in tiles
    )
    return f"<ul class=tiles>{items}</ul>"


def _up(moment: datetime) -> datetime:
    """Return the next whole second."""
    return moment + timedelta(microseconds=-moment.microsecond % 1_000_000)


def _made(found: ReportFindings) -> str:
    rows = words.counted(found.totals.rows, "row")
    instances = words.counted(found.instances, "proxy instance")
    lost = words.percent(found.loss.share) if found.loss.missing else "none"
    facts = {
        "Records": f"{rows} of {instances}, {words.counted(found.brokers, 'broker')}; {lost} missing",
        "Plots": f"in steps of {words.duration(found.step_s)}, {words.ZONE}",
        "Again": f"sluice analyze report --from {found.begin:{_OPTION}} --to {_up(found.end):{_OPTION}}, in UTC",
        "Episodes": f"muted intervals, with gaps of up to {words.duration(found.gap_ms / 1000)} (--gap) joined",
        "Used / limit": _USED_OVER_LIMIT,
        "Tables": escape(words.plain(found.tables)),
        "Meaning": f"every figure is defined in {_DOCS}",
    }
    items = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in facts.items())
    return f"<section id=made><h2>How this was made</h2><dl>{items}</dl></section>"
