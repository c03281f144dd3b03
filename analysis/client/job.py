"""The whole of it: from the rows of a warehouse to a directory with ``client.html``, tables and ``usage.csv``."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from html import unescape
from re import sub
from typing import Final

import numpy as np

from analysis.client import page, tables
from analysis.client.asked import Asked, nobody
from analysis.client.counters import Counter, OnCounters, counters, kinds_of, panels
from analysis.client.courses import courses, step_of
from analysis.client.facts import Seen, names_of_others, seen
from analysis.client.findings import Before, ClientFindings
from analysis.client.kept import keep, release
from analysis.client.nearby import busy
from analysis.client.scaled import scaled
from analysis.client.throttles import longest, muted, with_companions
from analysis.errors import AnalysisError
from analysis.kernel.units import read_rule
from analysis.metrics.episodes import episodes
from analysis.metrics.period import Period, look
from analysis.page import words
from analysis.replay.recording import Circumstances, circumstances_of
from analysis.spark.folder import Folder
from analysis.spark.progress import Progress
from analysis.table import results
from analysis.table.scan import UsageRows
from analysis.table.whole import made_whole

MOST_PANELS: Final = 64
"""Counters whose course is drawn or listed: those that held longest, then those that were used most."""
_PAGE: Final = "client.html"
_STEPS: Final = 8
_ID: Final = "%Y%m%dT%H%M%SZ"
_ALL: Final = 0.99
"""Of a period, from which on it counts as recorded."""
_MOST_NAMES: Final = 1000
"""That rows are looked up by; for more, all are read."""


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """The page of a client: of which period, where to, and how. ``gap_ms`` None is the window of enforcement."""

    asked: Asked
    begin: datetime
    end: datetime
    out: str
    gap_ms: int | None
    stored_since: datetime
    """Where the warehouse begins."""


@dataclass(frozen=True, slots=True)
class Made:
    sentence: str
    html: str
    """Where the page is."""


def run(usage: UsageRows, before: UsageRows | None, wanted: ClientRequest) -> Made:
    """Make the page. ``usage`` are the rows of the period, ``before`` those of the one before and the period, if any.

    Raises AnalysisError where there are no rows, or none of the client.
    """
    with Progress(usage.spark, "client", steps=_STEPS) as progress, ExitStack() as stack:
        name = f"{wanted.asked.folder()}/report={wanted.begin:{_ID}}-{wanted.end:{_ID}}"
        place = f"{wanted.out.rstrip('/')}/{name}"
        with made_whole(usage.spark, wanted.out, name, _PAGE) as making:
            folder = Folder(usage.spark, making)
            found = _find(usage, before, wanted, place, folder, progress.step, stack)
            progress.step("drawing")
            tables.write(folder, found)
            folder.write(_PAGE, page.render(found))
    return Made(unescape(sub("<[^>]*>", "", page.answer(found))), f"{place}/{_PAGE}")


def _find(
    usage: UsageRows,
    before: UsageRows | None,
    wanted: ClientRequest,
    place: str,
    folder: Folder,
    step: Callable[[str], None],
    stack: ExitStack,
) -> ClientFindings:
    """Return what the page shows, which will be in ``place``; the table of all episodes is written to ``folder``."""
    asked = wanted.asked
    step("looking at the period")
    period = look(usage)
    if period is None:
        raise AnalysisError(usage.nothing)
    circumstances = circumstances_of(usage)
    step("the client's rows")
    both = keep((before or usage).only(**asked.values))
    stack.callback(release, both)
    begin_ms = round(wanted.begin.timestamp() * 1000)
    sums = seen(both, begin_ms)
    if not sums.of(now=True):
        raise _nobody(usage, asked, wanted)
    own = replace(both, begin_us=begin_ms * 1000)
    charged = counters(own, asked, period.capped)
    lines = sorted(panels(charged, asked), key=lambda each: (-each.muted_ms, -each.used, each.number))
    step("who shares its limits")
    members = _members(usage, own, charged, sums, wanted, period)
    if members is not own:
        stack.callback(release, members)
    chosen = lines[:MOST_PANELS]
    drawn = courses(members, asked, chosen, period)
    step("when it was throttled")
    gap_ms = max(period.windows_ms) if wanted.gap_ms is None else wanted.gap_ms
    held = muted(own, asked, period.capped)
    throttles = episodes(held, gap_ms)
    results.write(folder, "episodes", throttles)
    # Most clients are never throttled: of these nothing else is asked.
    all_sums = sums.sums(now=True, episodes=0)
    any_held = bool(all_sums.muted_ms)
    shown = with_companions(members, asked, longest(throttles), charged, period.capped) if any_held else []
    step("who was busy meanwhile")
    neighbours = busy(usage, own, all_sums.rows, held, asked, period) if any_held else []
    step("what if")
    replayed = scaled(members, chosen, circumstances, period.capped)
    step("the period before")
    return ClientFindings(
        asked=asked,
        period=period,
        begin=wanted.begin,
        end=wanted.end,
        facts=sums.facts(),
        sums=replace(all_sums, episodes=len(throttles) if any_held else 0),
        before=_before(both, before, sums, wanted, period, gap_ms),
        counters=charged,
        panels=lines,
        courses=drawn,
        step_s=step_of(period),
        gap_ms=gap_ms,
        episodes=shown,
        busy=neighbours,
        scaled=replayed,
        missing=(circumstances.missing_documents, circumstances.documents + circumstances.missing_documents),
        notes=_notes(circumstances, sums, wanted),
        tables=place,
    )


def _nobody(usage: UsageRows, asked: Asked, wanted: ClientRequest) -> AnalysisError:
    others = names_of_others(usage, tuple(asked.names))
    return nobody(asked, others, f" {words.from_to(wanted.begin, wanted.end)} UTC")


def _members(
    usage: UsageRows, own: UsageRows, charged: Sequence[Counter], sums: Seen, wanted: ClientRequest, period: Period
) -> UsageRows:
    """Return the rows of all who are charged to the counters of a client: its own, where it shares none."""
    asked = wanted.asked
    shared = [each for each in charged if not each.is_own(asked)]
    if not shared:
        return own
    facts = sums.facts()
    for column, part in (("user", "unit_user"), ("client_id", "unit_client_id")):
        # A counter that is told from others by a name is of rows with that name.
        names = {getattr(each, part) for each in shared if _told_by(each, column)}
        own_names = {pair[column == "client_id"] for pair in facts.clients}
        known = facts.how_many_clients == len(facts.clients) and len(names | own_names) <= _MOST_NAMES
        if known and all(_told_by(each, column) for each in shared):
            usage = usage.only(**{column: sorted(names | own_names)})
            break
    numbers = np.unique(np.array([each.counter for each in shared], dtype=np.int64))
    return keep(usage, OnCounters(asked, kinds_of(asked), tuple(period.capped), numbers))


def _told_by(counter: Counter, column: str) -> bool:
    try:
        rule = read_rule(counter.rule or "")
    except ValueError:  # of another product
        return False
    name = getattr(rule.entity, column)
    value = getattr(counter, f"unit_{column}")
    # Of a group or a prefix the unit is no name of anybody.
    plain = name is not None and type(name).__name__ in {"str", "Default"}
    return value is not None and (plain or not rule.shared)


def _before(
    both: UsageRows,
    before: UsageRows | None,
    sums: Seen,
    wanted: ClientRequest,
    period: Period,
    gap_ms: int,
) -> Before:
    begin = wanted.begin - (wanted.end - wanted.begin)
    if before is None:
        return Before(begin, None, {}, {}, f"records begin at {words.moment(wanted.stored_since)}")
    earlier = replace(both, end_us=round(wanted.begin.timestamp() * 1_000_000))
    throttles = episodes(muted(earlier, wanted.asked, period.capped), gap_ms)
    note = ""
    if wanted.stored_since > begin:
        note = f"records begin at {words.moment(wanted.stored_since)}: it is shorter"
    count = len(throttles) if any(sums.by_kind("muted_ms", now=False).values()) else 0
    return Before(
        begin,
        sums.sums(now=False, episodes=count),
        sums.by_kind("muted_ms", now=False),
        sums.by_kind("used", now=False),
        note,
    )


def _notes(circumstances: Circumstances, sums: Seen, wanted: ClientRequest) -> list[str]:
    facts = sums.facts()
    said = []
    recorded = circumstances.end - circumstances.begin
    if recorded < _ALL * (wanted.end - wanted.begin):
        said.append(f"Records are there {words.from_to(circumstances.begin, circumstances.end)} UTC alone")
    if circumstances.missing_documents:
        of = circumstances.documents + circumstances.missing_documents
        said.append(
            f"{circumstances.missing_documents:,} of {of:,} documents of the period are missing (lost by a proxy, or "
            "not ingested): what is shown is the least"
        )
    if facts.exempt_rows:
        said.append("Some of its use was exempt (quotas.exempt): no quota held that")
    if facts.shadow_rows:
        said.append("A limit in shadow was measured for it, which held nobody and is not drawn")
    return said
