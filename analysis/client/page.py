"""The page of one client: an answer in a sentence, tiles, sections. One file, no request to anywhere."""

from html import escape
from typing import Final

from analysis.client import limits, sections
from analysis.client.findings import ClientFindings
from analysis.page import words
from analysis.page.html import document

_DOCS: Final = "docs/analysis-report.md"


def render(found: ClientFindings) -> str:
    """Return the HTML."""
    name = words.plain(found.asked.describe())
    title = f"{name}: {words.from_to(found.begin, found.end)} UTC"
    parts = (
        sections.who(found),
        limits.kinds(found),
        limits.headroom(found),
        sections.episodes(found),
        sections.neighbours(found),
        limits.what_if(found),
        sections.before(found),
        _made(found),
    )
    css = "" if found.sums.muted_ms else " class=well"
    leads = " ".join(f"{escape(words.plain(note))}." for note in (*_leads(found), *found.notes))
    return document(
        title,
        f"<header><p class=over>Sluice, one client &middot; {escape(title)}</p><h1{css}>{answer(found)}</h1>"
        f"<p class=lead>{leads}</p></header><main>{_tiles(found)}{''.join(parts)}</main>",
    )


def answer(found: ClientFindings) -> str:
    """Return, as HTML, the answer in a sentence."""
    name = words.name(found.asked.describe(), 80)
    was = "would have been" if found.shadow else "was"
    if not found.sums.muted_ms:
        return f"{name} {was} throttled <em>never</em>."
    episodes = words.counted(found.sums.episodes, "episode")
    return f"{name} {was} throttled for <em>{words.duration(found.sums.muted_ms / 1000)}</em>, in {episodes}."


def _leads(found: ClientFindings) -> list[str]:
    said = []
    by_kind: dict[tuple[str, str], int] = {}
    for each in found.counters:
        if each.muted_ms and each.rule:
            by_kind[each.kind, each.rule] = by_kind.get((each.kind, each.rule), 0) + each.muted_ms
    if by_kind:
        kind, rule = max(by_kind, key=lambda key: by_kind[key])
        said.append(f"Most of it {words.doing(kind)}, by {rule}")
    if len(found.facts.modes) > 1 or found.shadow:
        said.append(f"Mode: {', '.join(found.facts.modes)}")
    return said


def _tiles(found: ClientFindings) -> str:
    sums, before = found.sums, found.before.sums
    closest = max(
        (course.full_while_active[2] for course in found.courses.values() if course.full_while_active), default=None
    )
    tiles = [
        (words.duration((found.end - found.begin).total_seconds()), "period", ""),
        (words.duration(sums.muted_ms / 1000), "throttled, all counters", "hot" if sums.muted_ms else ""),
        (f"{sums.episodes:,}", "episodes", ""),
        (
            "none" if closest is None else words.percent(closest),
            "of its closest limit, p99 while active",
            "hot" if (closest or 0) >= 0.9 else "",
        ),
    ]
    if found.asked.of_address:
        tiles.append((words.count(sums.attempts), "attempts to connect", ""))
    else:
        tiles += [
            (words.size(sums.bytes_in), "in", ""),
            (words.size(sums.bytes_out), "out", ""),
            (words.count(sums.requests), "requests", ""),
        ]
    if before is not None and before.rows:
        tiles.append((words.duration(before.muted_ms / 1000), "throttled in the period before", ""))
    items = "".join(
        f'<li><strong class="{css}">{number}</strong><span>{said}</span></li>' for number, said, css in tiles
    )
    return f"<ul class=tiles>{items}</ul>"


def _made(found: ClientFindings) -> str:
    missing, documents = found.missing
    facts = {
        "Rows": words.counted(found.sums.rows, "row"),
        "Documents": f"{documents - missing:,} of {documents:,} of the period are there",
        "Plots": f"in steps of {words.duration(found.step_s)}, UTC",
        "Episodes": f"muted intervals, with gaps of up to {words.duration(found.gap_ms / 1000)} (--gap) joined",
        "Tables": escape(words.plain(found.tables)),
        "Meaning": f"every figure is defined in {_DOCS}",
    }
    items = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in facts.items())
    return f"<section id=made><h2>How this was made</h2><dl>{items}</dl></section>"
