"""A report, from gold to files: a directory with its tables, ``chargeback.csv`` and ``report.html``."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from analysis import warehouse
from analysis.asked import Asked
from analysis.errors import AnalysisError
from analysis.report import page, tables
from analysis.report.spreadsheet import harmless
from analysis.warehouse import HOUR, Gold, Period

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from analysis.report.rates import Rates

_DAY: Final = timedelta(days=1)
_NAMES: Final = ("ResourceId", "SubAccountId", "SubAccountName")
_MOST: Final = 2**63 - 1
_STAMP: Final = "%Y%m%dT%H%M%SZ"
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True)
class ReportRequest:
    warehouse: str
    begin: datetime | None
    end: datetime | None
    out: str
    rates: "Rates | None"
    gap_ms: int | None
    zone: ZoneInfo
    against: bool
    """Whether the period before is compared."""
    client: Asked | None = None


@dataclass(frozen=True, slots=True)
class Made:
    sentence: str
    html: str


def run(request: ReportRequest, now: datetime, tell: Callable[[str], None]) -> Made:
    """Make a report, and return its answer and where its page is. Raises AnalysisError."""
    found = warehouse.gold(request.warehouse)
    period = _period(request, found, now)
    notes = [_behind(found, period), _rounded(request, period)]
    for note in filter(None, notes):
        tell(note)
    with warehouse.connected() as connection:
        tables.show(connection, found, period, request.client)
        span = tables.measure(connection, period, request.gap_ms)
        tables.find_earlier_boots(connection, found)
        tables.price(connection, request.rates, request.zone)
        names = [*tables.OF_PERIOD]
        tables.make(connection, tables.OF_PERIOD)
        if request.client is not None:
            tables.make(connection, tables.OF_CLIENT)
            names += tables.OF_CLIENT
        else:
            names += tables.reject(connection, found)
            if request.against:
                names += tables.compare(connection, found, _before(period))
        name = f"report={span.begin:{_STAMP}}-{span.end + timedelta(milliseconds=999):{_STAMP}}"
        folder = name if request.client is None else f"{request.client.folder()}/{name}"
        with TemporaryDirectory() as place:
            _write(connection, names, Path(place))
            about = page.About(span, period, request.zone, request.client, [note for note in notes if note])
            html = page.render(connection, about)
            Path(place, "report.html").write_text(html, encoding="utf-8")
            _keep(Path(place), request.out, folder)
        return Made(page.sentence(connection, request.client), f"{request.out.rstrip('/')}/{folder}/report.html")


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
    """Return a note if the newest hour has got rows since its tables were made; raise AnalysisError if another has."""
    behind = found.behind(period)
    if not behind:
        return None
    newest = max([*found.hours, *behind])
    older = sorted(hour for hour in behind if hour != newest and hour + HOUR != newest)
    if older:
        many = f" and {len(older) - 1} more" if len(older) > 1 else ""
        raise AnalysisError(
            f"{found.warehouse}: rows of the hour {older[0]:%Y-%m-%d %H:%M} UTC{many} are not in gold yet: an "
            "ingest that runs makes it every five minutes, else run `sluice analyze ingest --once` without --no-gold"
        )
    batches = sum(behind.values())
    return f"{batches} newer batch{'es' if batches > 1 else ''} of rows not in gold yet, and not in this report"


def _write(connection: "DuckDBPyConnection", names: Sequence[str], place: Path) -> None:
    def quoted(name: str) -> str:
        return str(place / name).replace("'", "''")

    # A sum of BIGINT is a HUGEINT, which Parquet does not have; forged records may add up to more than there is.
    wide = connection.execute(
        "SELECT table_name, column_name FROM duckdb_columns() WHERE schema_name = 'main' AND data_type = 'HUGEINT'"
    ).fetchall()
    for name in names:
        narrow = [f'least("{column}", {_MOST})::BIGINT AS "{column}"' for table, column in wide if table == name]
        replaced = f" REPLACE ({', '.join(narrow)})" if narrow else ""
        connection.execute(
            f"COPY (SELECT *{replaced} FROM main.{name}) TO '{quoted(f'{name}.parquet')}' "
            "(FORMAT parquet, COMPRESSION zstd)"
        )
    # A name that a spreadsheet would take for a formula is written so that it is none.
    connection.execute("CREATE TABLE written (name VARCHAR, harmless VARCHAR)")
    found = connection.execute("SELECT ResourceId FROM chargeback UNION SELECT SubAccountId FROM chargeback").fetchall()
    if changed := [[name, harmless(name)] for (name,) in found if harmless(name) != name]:
        connection.executemany("INSERT INTO written VALUES (?, ?)", changed)
    written = ", ".join(
        f"coalesce((SELECT harmless FROM written WHERE name = {name}), {name}) AS {name}" for name in _NAMES
    )
    times = ", ".join(
        f"strftime({name}, '{_TIME}') AS {name}"
        for name in ("BillingPeriodStart", "BillingPeriodEnd", "ChargePeriodStart", "ChargePeriodEnd")
    )
    connection.execute(
        f"COPY (SELECT * REPLACE ({times}, {written}) FROM chargeback) TO '{quoted('chargeback.csv')}' "
        "(FORMAT csv, HEADER)"
    )


def _keep(made: Path, out: str, folder: str) -> None:
    """Put the files in the place of an earlier report of the same period."""
    try:
        if (root := warehouse.on_disk(out)) is not None:
            target = root / folder
            unfinished = root / f".unfinished-{folder.replace('/', '-')}"
            shutil.rmtree(unfinished, ignore_errors=True)
            shutil.copytree(made, unfinished)
            shutil.rmtree(target, ignore_errors=True)
            target.parent.mkdir(parents=True, exist_ok=True)
            unfinished.rename(target)
            return
        import pyarrow.fs as pafs

        files, place = warehouse.located(out)
        files.create_dir(f"{place}/{folder}")
        files.delete_dir_contents(f"{place}/{folder}")
        pafs.copy_files(str(made), f"{place}/{folder}", pafs.LocalFileSystem(), files)
    except OSError as error:
        raise AnalysisError(f"--out: {out} cannot be written: {error}") from None
