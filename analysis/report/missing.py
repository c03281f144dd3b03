"""What is missing, on the page: found in the table ``loss``, said at the top, and shown by proxy and hour."""

from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from analysis.metrics.loss import HOUR_MS
from analysis.metrics.period import Period
from analysis.page import draw, words
from analysis.page.html import Cell, key, section, table
from analysis.report.findings import Loss, Missing, ReportFindings
from analysis.table.arrays import added, ints
from analysis.table.documents import BOOT

TITLE: Final = "What is missing"
_PLACES: Final = 200
_HOUR_S: Final = HOUR_MS // 1000
_TOLD: Final = ("missing", "dropped", "late", "rejected", "wrong_clock")
_SUMS: Final = ("expected", *_TOLD)


def summarize(loss: pa.Table, period: Period) -> Loss:
    """Return what a page shows of the table."""
    in_all = {name: int(ints(loss, name).sum()) for name in (*_SUMS, "rows_of_others")}
    if not any(in_all.values()):
        return Loss()
    sums = added(loss.filter(loss["hour"].is_valid()), ("hour",), dict.fromkeys(_SUMS[:2], "sum")).sort_by("hour")
    of_hour = [
        Missing(*_hour(each["hour"]), expected=each["expected"], missing=each["missing"]) for each in sums.to_pylist()
    ]
    worst = max((each for each in of_hour if each.missing), key=lambda each: each.missing, default=None)
    told = loss.filter(reduce(pc.or_, (pc.greater(loss[name], 0) for name in _TOLD)))
    order = [*((name, "descending") for name in _TOLD), *((name, "ascending") for name in ("hour", *BOOT))]
    places = [
        Missing(*_hour(each["hour"]), **{name: each[name] for name in (*_SUMS, "cluster", "instance")})
        for each in told.sort_by(order).slice(0, _PLACES).to_pylist()
    ]
    return Loss(**in_all, worst=worst, steps=_steps(of_hour, period), places=places)


def _steps(hours: list[Missing], period: Period) -> list[Missing]:
    step_s = period.step_of(_HOUR_S)
    sums: dict[datetime, list[int]] = {step: [0, 0] for step in period.steps(step_s)}
    for each in hours:
        if each.begin is not None:
            found = sums.get(datetime.fromtimestamp(each.begin.timestamp() // step_s * step_s, UTC), [0, 0])
            found[0] += each.expected
            found[1] += each.missing
    length = timedelta(seconds=step_s)
    return [Missing(step, step + length, expected, missing) for step, (expected, missing) in sums.items()]


def _hour(begin: datetime | None) -> tuple[datetime | None, datetime | None]:
    return (None, None) if begin is None else (begin, begin + timedelta(seconds=_HOUR_S))


def sentence(loss: Loss) -> str:
    """Return, as HTML, how much is missing, and of the worst hour; "" where nothing is."""
    if not loss.missing:
        return ""
    said = f"{words.percent(loss.share)} of the records are missing"
    if loss.worst is not None and loss.worst.share > loss.share:
        said += f"; of {_when(loss.worst)} {words.ZONE}, the worst hour, {words.percent(loss.worst.share)}"
    return f"{said}."


def _when(each: Missing) -> str:
    """Return its time as HTML."""
    return "unknown time" if each.begin is None or each.end is None else words.between(each.begin, each.end)


def headline(found: ReportFindings) -> str:
    """Return what stands below the answer: nothing where everything is known."""
    loss = found.loss
    if not loss.missing:
        return ""
    steps = loss.steps
    step_s = round((steps[0].end - steps[0].begin).total_seconds()) if steps and steps[0].begin and steps[0].end else 0
    said = [
        f"{words.from_to(each.begin, each.end)}: {words.percent(each.share)} is missing, {each.missing:,} of "
        f"{each.expected:,} documents"
        for each in steps
        if each.begin is not None and each.end is not None
    ]
    begins = [each.begin for each in steps if each.begin is not None]
    strip = draw.strip([each.share for each in steps], begins, step_s, said)
    axis = draw.ticks(begins[0], begins[-1] + timedelta(seconds=step_s)) if begins else ""
    legend = key(("heat", "part of the documents is missing &hellip; all"))
    return (
        f"<div class=lost><p><b>{sentence(loss)}</b> Whatever is counted below was at least that much; "
        f"&ldquo;{TITLE}&rdquo; says where.</p>{legend}{strip}{axis}</div>"
    )


def missing(found: ReportFindings) -> str:
    """Return the section, or nothing where nothing is missing, late, rejected or nameless."""
    loss = found.loss
    if not (loss.places or loss.rows_of_others):
        return ""
    of_all = words.counted(loss.expected, "document")
    said = [f"<b>{loss.missing:,}</b> of {of_all} that proxies wrote are not stored: what they told is in no figure."]
    if loss.dropped:
        said.append(f"The proxies say that they dropped <b>{loss.dropped:,}</b>: a buffer was full (usage.buffer).")
    if loss.rejected:
        clocks = f", {loss.wrong_clock:,} of them for a clock that is wrong" if loss.wrong_clock else ""
        said.append(f"<b>{loss.rejected:,}</b> could not be read{clocks}: they are in the table rejected.")
    if loss.late:
        said.append(
            f"<b>{loss.late:,}</b> came after later hours had been stored: an earlier report did not have them."
        )
    if loss.rows_of_others:
        said.append(
            f"<b>{words.counted(loss.rows_of_others, 'row')}</b> of {found.totals.rows:,} are of clients beyond "
            "usage.max_clients, as sluice:other: nobody knows which of them used what."
        )
    heads = [
        ("hour", "in which they were written"),
        ("proxy", "instance"),
        ("missing", "of all documents that it wrote in that hour"),
        ("documents", "that are missing"),
        ("dropped", "by the proxy's own count, as it told in that hour"),
        ("late", "stored after later hours"),
        ("rejected", "could not be read; in missing, unless they came again"),
        ("wrong clock", "of these, for a time that cannot be"),
    ]
    rows = (
        (
            Cell(_when(each), each.begin.timestamp() if each.begin else 0),
            Cell(words.name(each.instance) if each.instance is not None else "unknown"),
            Cell(words.percent(each.share), each.share),
            *(Cell(f"{getattr(each, name):,}", getattr(each, name)) for name in _TOLD),
        )
        for each in loss.places
    )
    places = table(heads, rows) if loss.places else ""
    return section("loss", TITLE, " ".join(said), places)
