"""What-if as one self-contained page: before and after, for whoever is asked to agree to the quotas."""

from html import escape
from typing import Final

from analysis.page import words
from analysis.page.html import Cell, document, empty, key, line, section, table, whose
from analysis.whatif import comparison
from analysis.whatif.comparison import Row, Totals
from analysis.whatif.job import WhatIf

OURS: Final = "Sluice what-if"
"""By which a page is known."""
_BARS: Final = 30
_ROWS: Final = 500
_HEADS: Final = (
    ("clients", "user / client-id that share the counter"),
    ("", "producing or consuming"),
    ("rule", "the proposed quota that holds"),
    ("limit", "on one broker of one proxy"),
    ("where", "proxy and broker"),
    ("before", "throttled while recorded"),
    ("after", "under the proposed quotas, or between what"),
    ("by", "the quota or cap that would hold it for longest"),
    ("episodes", "throttles with a second without one between them"),
    ("throttle p99", "throttle time that requests would be given"),
    ("delay p50", "how long bytes would wait"),
    ("p95", "how long bytes would wait"),
    ("p99", "how long bytes would wait, or between what"),
    ("served", "of the recorded bytes, within the period"),
    ("known", "exact; interval: held up while recorded, the truth lies within; unknown: until the recording ended"),
)


def render(found: WhatIf) -> str:
    """Return the page."""
    circumstances = found.recording.circumstances
    title = f"{words.from_to(circumstances.begin, circumstances.end)} UTC"
    sums = {scenario.name: comparison.totals(found, scenario.name) for scenario in found.scenarios}
    notes = [
        *circumstances.notes(),
        *(
            f"{scenario.name}: {each}"
            for scenario in found.scenarios
            for each in comparison.left_out(found, scenario.name)
        ),
    ]
    parts = "".join(_scenario(found, number, *each) for number, each in enumerate(sums.items()))
    return document(
        f"What if: {title}",
        f"<header><p class=over>{OURS} &middot; {escape(title)}</p>{''.join(map(_headline, sums.items()))}"
        f"<p class=lead>{escape(' '.join(f'{note}.' for note in notes))}</p></header>"
        f"<main>{parts}</main>",
    )


def _headline(named: tuple[str, Totals]) -> str:
    name, sums = named
    css = " class=well" if not sums.throttled + sums.possibly_throttled else ""
    counters = f"{sums.throttled:,} of {words.counted(sums.counters, 'counter')}" if sums.throttled else "Nobody"
    possibly = f" (and possibly {sums.possibly_throttled:,} more)" if sums.possibly_throttled else ""
    return f"<h1{css}><em>{counters}</em> would be throttled under {words.name(name)}{possibly}.</h1>"


def _scenario(found: WhatIf, number: int, name: str, sums: Totals) -> str:
    anchor, title = f"scenario-{number}", f"Under {words.plain(name)}"
    rows = comparison.touched(found, name, _ROWS)
    if not rows:
        return empty(anchor, title, "No counter was throttled, and none would be.")
    longest_s = max(max(row["throttled_most_s"], row["before_throttled_s"]) for row in rows)
    bars = "".join(_bar(row, longest_s) for row in rows[:_BARS])
    legend = key(("hot", "throttled, surely"), ("hot pale", "at most"), ("dash", "before"))
    says = (
        f"Throttled in all: <b>{words.duration(sums.throttled_before_s)}</b> before, "
        f"<b>{words.duration(sums.throttled_s)}</b> after. Served within the period: {words.size(sums.sent_bytes)} of "
        f"{words.size(sums.recorded_bytes)}. {sums.limited:,} of {words.counted(sums.counters, 'counter')} "
        "have a limit."
    )
    return _tiles(sums) + section(anchor, title, says, legend, f"<div class=rows>{bars}</div>", _table(rows))


def _tiles(sums: Totals) -> str:
    hot = sums.throttled + sums.possibly_throttled > sums.throttled_before
    tiles = [
        (f"{sums.throttled_before:,} → {sums.throttled:,}", "counters throttled", "hot" if hot else ""),
        (f"{sums.possibly_throttled:,}", "possibly throttled too", ""),
        (words.duration(sums.throttled_before_s), "throttled before, in all", ""),
        (words.duration(sums.throttled_s), "throttled after", ""),
        (words.size(sums.recorded_bytes - sums.sent_bytes), "not served within the period", ""),
    ]
    items = "".join(
        f'<li><strong class="{css}">{number}</strong><span>{said}</span></li>' for number, said, css in tiles
    )
    return f"<ul class=tiles>{items}</ul>"


def _bar(row: Row, longest_s: float) -> str:
    limit = "no limit" if row["limit"] is None else words.limit(row["kind"], row["limit"])
    return line(
        whose(
            comparison.named(row),
            f"{words.doing(row['kind'])}, {escape(comparison.where(row))}, {limit}",
        ),
        _span(row, longest_s),
        f"{comparison.after(row)}<small>before: {words.duration(row['before_throttled_s'])}</small>",
    )


def _span(row: Row, longest_s: float) -> str:
    """Draw what is sure, what is at most, and where it was before."""
    sure, most, before = (
        f"{100 * row[name] / longest_s:.2f}" for name in ("throttled_least_s", "throttled_most_s", "before_throttled_s")
    )
    return (
        '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-hidden="true">'
        '<rect class="rail" x="0" y="3" width="100" height="4"/>'
        f'<rect class="hot pale" x="0" y="2" width="{most}" height="6"/>'
        f'<rect class="hot" x="0" y="2" width="{sure}" height="6"/><path class="limit" d="M{before} 0V10"/></svg>'
    )


def _table(rows: list[Row]) -> str:
    def seconds(value: float, said: str | None = None) -> Cell:
        return Cell(said or words.duration(value), value)

    cells = (
        (
            Cell(words.name(comparison.named(row))),
            Cell(words.doing(row["kind"])),
            Cell(words.name(row["rule"] or "none")),
            Cell("&ndash;" if row["limit"] is None else words.limit(row["kind"], row["limit"]), row["limit"] or 0),
            Cell(escape(comparison.where(row))),
            seconds(row["before_throttled_s"]),
            seconds(row["throttled_s"], comparison.after(row)),
            Cell(words.name(row["held_by"] or "nothing")),
            Cell(f"{row['episodes']:,.0f}", row["episodes"]),
            *(seconds(row[name]) for name in ("throttle_p99_s", "delay_p50_s", "delay_p95_s")),
            seconds(row["delay_p99_s"], comparison.delay_p99(row)),
            Cell(words.percent(comparison.served(row)), comparison.served(row)),
            Cell(row["answer"]),
        )
        for row in rows
    )
    return f"<h3>All of them, at most {_ROWS}</h3>{table(_HEADS, cells)}"
