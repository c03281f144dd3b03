"""Writes a report from gold: a directory with its tables, ``chargeback.csv`` and ``report.html``, and links to it."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from analysis import warehouse
from analysis.client_filter import ClientFilter
from analysis.errors import AnalysisError, of_worker
from analysis.report import exports, links, page, tables
from analysis.warehouse import HOUR, Gold, Period

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from analysis.report.rates import Rates

_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class ReportRequest:
    warehouse: str
    begin: datetime | None
    end: datetime | None
    out: str
    rates: "Rates | None"
    zone: ZoneInfo
    client: ClientFilter | None = None
    as_csv: bool = False
    """All tables as CSV, too; of chargeback there is always one."""
    as_json: bool = False


def run(request: ReportRequest, now: datetime, tell: Callable[[str], None]) -> str:
    """Write a report; return its answer in a sentence, and in another line the path of its page, or all of it as JSON.

    Raises AnalysisError.
    """
    found = warehouse.gold(request.warehouse)
    period = _period(request, found, now)
    notes = [_behind(found, period), _rounded(request, period)]
    for note in filter(None, notes):
        tell(note)
    with warehouse.connected() as connection:
        tables.show(connection, found, period, request.client)
        span = tables.measure(connection, period)
        tables.find_earlier_boots(connection, found)
        step = tables.OF_USERS if request.client is None else HOUR
        tables.price(connection, request.rates, tables.LocalDays(request.zone, step, request.begin, request.end))
        names = [*tables.OF_PERIOD]
        tables.make(connection, tables.OF_PERIOD)
        if request.client is not None:
            tables.make(connection, tables.OF_CLIENT)
            names += tables.OF_CLIENT
        else:
            names += tables.reject(connection, found)
            names += tables.compare(connection, found, _before(period))
        of = "" if request.client is None else request.client.folder()
        name = links.folder(span.begin, span.end + timedelta(milliseconds=999))
        about = page.About(span, period, request.zone, request.client, [note for note in notes if note])
        with TemporaryDirectory() as place:
            _write(connection, names, Path(place), request.as_csv)
            Path(place, "report.html").write_text(page.render(connection, about), encoding="utf-8")
            _publish(Path(place), request.out, of, name)
        answer = page.sentence(connection, request.client)
        path = f"{request.out.rstrip('/')}/{f'{of}/{name}'.lstrip('/')}/report.html"
        if not request.as_json:
            return f"{answer}\n{path}"
        said = {"begin": span.begin, "end": span.end, "answer": answer, "notes": about.notes, "page": path}
        return exports.as_json(connection, names, said)


def _period(request: ReportRequest, found: Gold, now: datetime) -> Period:
    """Return the hours of a request; without one, the last 24 that are stored."""
    end = request.end or (None if request.begin else found.newest(now) + HOUR)
    begin = request.begin or (end and end - _DAY)
    around = Period.around(begin, end)
    return Period(around.begin, around.end or found.newest(now) + HOUR)


def _before(period: Period) -> Period:
    assert period.begin is not None  # noqa: S101  _period has both
    assert period.end is not None  # noqa: S101
    return Period(period.begin - (period.end - period.begin), period.begin)


def _rounded(request: ReportRequest, period: Period) -> str | None:
    if (request.begin or period.begin, request.end or period.end) == (period.begin, period.end):
        return None
    return f"gold is by UTC hour: the report is from {period.begin:%Y-%m-%d %H:%M} to {period.end:%Y-%m-%d %H:%M} UTC"


def _behind(found: Gold, period: Period) -> str | None:
    """Return a note if the newest two hours have rows that gold lacks. Raises AnalysisError if older hours have."""
    behind = found.behind(period)
    if not behind:
        return None
    newest = max([*found.hours, *behind])
    older = sorted(hour for hour in behind if hour != newest and hour + HOUR != newest)
    if older:
        many = f" and {len(older) - 1} more" if len(older) > 1 else ""
        raise AnalysisError(
            f"{found.warehouse}: rows of the hour {older[0]:%Y-%m-%d %H:%M} UTC{many} are not in gold yet: "
            "`ingest --every` makes it every five minutes, else run `sluice analyze gold`"
        )
    batches = sum(behind.values())
    return f"{batches} newer batch{'es' if batches > 1 else ''} of rows not in gold yet, and not in this report"


def _write(connection: "DuckDBPyConnection", names: Sequence[str], place: Path, as_csv: bool) -> None:
    exports.prepare(connection)
    for name in names:
        exports.parquet(connection, name, place)
        if as_csv or name == "chargeback":
            exports.csv(connection, name, place)


def _publish(files: Path, out: str, of: str, name: str) -> None:
    """Move the files to their directory, and link them; they replace an earlier report of the same period."""
    folder = f"{of}/{name}".lstrip("/")
    try:
        if (root := warehouse.on_disk(out)) is not None:
            target = root / folder
            unfinished = root / f".unfinished-{folder.replace('/', '-')}"
            shutil.rmtree(unfinished, ignore_errors=True)
            try:
                shutil.copytree(files, unfinished)
                shutil.rmtree(target, ignore_errors=True)
                target.parent.mkdir(parents=True, exist_ok=True)
                unfinished.rename(target)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
        else:
            import pyarrow.fs as pafs

            store, place = warehouse.located(out)
            store.create_dir(f"{place}/{folder}")
            store.delete_dir_contents(f"{place}/{folder}")
            pafs.copy_files(str(files), f"{place}/{folder}", pafs.LocalFileSystem(), store)
        links.refresh(out, of, name)
    except OSError as error:
        raise AnalysisError(f"--out: {out} cannot be written: {of_worker(error) or error}") from None
