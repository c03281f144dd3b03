"""The whole of it: from usage rows to a directory with tables, ``chargeback.csv`` and ``report.html``."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from html import unescape
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from analysis.errors import AnalysisError
from analysis.metrics import comparison
from analysis.metrics.period import Period, look
from analysis.metrics.rates import Rates
from analysis.page import spreadsheet
from analysis.report import comparing, episodes, missing, page, tables
from analysis.report.comparing import Against, Other
from analysis.report.findings import ReportFindings
from analysis.report.summary import summarize
from analysis.report.tables import ReportChoices
from analysis.spark.folder import Folder
from analysis.spark.progress import Progress
from analysis.table import reading
from analysis.table.parts import Parts
from analysis.table.results import Results
from analysis.table.scan import UsageRows
from analysis.table.whole import made_whole

_PAGE: Final = "report.html"
_ID: Final = "%Y%m%dT%H%M%SZ"


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """A report: of which period, where to, and how. ``gap_ms`` None is the window of enforcement."""

    begin: datetime | None
    end: datetime | None
    out: str
    rates: Rates
    gap_ms: int | None
    against: Against | None = None
    """What it is held against; None: nothing."""


@dataclass(frozen=True, slots=True)
class Made:
    sentence: str
    """The headline."""
    html: str
    """Where the page is."""


def run(usage: UsageRows, wanted: ReportRequest) -> Made:
    """Make the report of ``usage``. A second one of the same period takes the place of the first, as a whole."""
    with Progress(usage.spark, "report", steps=len(tables.NAMES) + 3 + (wanted.against is not None)) as progress:
        progress.step("looking at the period")
        period = look(usage)
        if period is None:
            raise AnalysisError(usage.nothing)
        begin, end = wanted.begin or period.begin, wanted.end or period.end
        other = None if wanted.against is None else comparing.find(wanted.against, (begin, end))
        name = f"report={begin:{_ID}}-{end:{_ID}}"
        place = f"{wanted.out.rstrip('/')}/{name}"
        with made_whole(usage.spark, wanted.out, name, _PAGE) as making:
            found = _make(usage, period, other, wanted, place, making, progress.step)
    answer = " ".join(filter(None, (page.answer(found), missing.sentence(found.loss))))
    return Made(unescape(re.sub("<[^>]*>", "", answer)), f"{place}/{_PAGE}")


def _make(
    usage: UsageRows,
    period: Period,
    other: Other | None,
    wanted: ReportRequest,
    place: str,
    making: str,
    step: Callable[[str], None],
) -> ReportFindings:
    """Write all that is in ``place`` to ``making``, and return what the page shows."""
    choices = ReportChoices(_gap_ms(period, wanted), wanted.rates)
    results = Results(usage.spark, making)
    step("reading")
    makings = tables.makings(usage, period, choices.gap_ms)
    makings += [] if other is None else [comparison.making()]
    read = reading.tables(usage, makings, period.rows, period.longest_window_ms)
    made = tables.make(usage, read, period, results, choices, step)
    if other is not None:
        step("against another period")
    compared = None if other is None else comparing.make(read, made, other, results)
    step("drawing")
    found = replace(summarize(made, period, choices, place), comparison=compared)
    folder = Folder(usage.spark, making)
    folder.write("chargeback.csv", _csv(made["chargeback"]))
    episodes.write(folder, made["episodes"])
    folder.write(_PAGE, page.render(found))
    return found


def _gap_ms(period: Period, wanted: ReportRequest) -> int:
    return max(period.windows_ms) if wanted.gap_ms is None else wanted.gap_ms


def _csv(chargeback: Parts) -> str:
    tables_ = (_written(table).to_pydict() for table in chargeback.tables())
    lines = (line for table in tables_ for line in zip(*table.values(), strict=True))
    return spreadsheet.text(chargeback.schema.names, lines)


def _written(table: pa.Table) -> pa.Table:
    """Return times as texts."""
    for index, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            whole_s = table.column(index).cast(pa.timestamp("s", "UTC"), safe=False)
            table = table.set_column(index, field.name, pc.strftime(whole_s, "%Y-%m-%dT%H:%M:%SZ"))
    return table
