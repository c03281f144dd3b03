"""Writes a report from gold: a directory with its tables, ``chargeback.csv`` and ``report.html``."""

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
from analysis.errors import AnalysisError
from analysis.report import page, tables
from analysis.warehouse import HOUR, Gold, Period

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from analysis.report.rates import Rates

_DAY: Final = timedelta(days=1)
_NAMES: Final = ("ResourceId", "SubAccountId", "SubAccountName")
_SIGNS: Final = "=+@−⁺⁻⁼₊₋₌﬩﹢﹣﹦﹫\N{FULLWIDTH PLUS SIGN}\uff0d\uff1d\uff20⩵⩶-"  # noqa: RUF001
"""The first characters of formulas: signs, and forms of them that NFKC makes one."""
HARMLESS: Final = (
    "CASE WHEN regexp_matches(name, "
    rf"""$$^(\p{{Cc}}|[\p{{Cc}}\p{{Cf}}\p{{Zs}}\p{{Zl}}\p{{Zp}}"'`“”]*[{_SIGNS}])$$) """
    "THEN chr(39) || name ELSE name END"
)
"""SQL: ``name``, with a ``'`` before it if a spreadsheet could take it for a formula, or its begin for a new cell."""
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
    zone: ZoneInfo
    client: ClientFilter | None = None


def run(request: ReportRequest, now: datetime, tell: Callable[[str], None]) -> tuple[str, str]:
    """Write a report; return its answer in a sentence, and the path of its page. Raises AnalysisError."""
    found = warehouse.gold(request.warehouse)
    period = _period(request, found, now)
    notes = [_behind(found, period), _rounded(request, period)]
    for note in filter(None, notes):
        tell(note)
    with warehouse.connected() as connection:
        tables.show(connection, found, period, request.client)
        span = tables.measure(connection, period)
        tables.find_earlier_boots(connection, found)
        tables.price(connection, request.rates, request.zone)
        names = [*tables.OF_PERIOD]
        tables.make(connection, tables.OF_PERIOD)
        if request.client is not None:
            tables.make(connection, tables.OF_CLIENT)
            names += tables.OF_CLIENT
        else:
            names += tables.reject(connection, found)
            names += tables.compare(connection, found, _before(period))
        name = f"report={span.begin:{_STAMP}}-{span.end + timedelta(milliseconds=999):{_STAMP}}"
        folder = name if request.client is None else f"{request.client.folder()}/{name}"
        with TemporaryDirectory() as place:
            _write(connection, names, Path(place))
            about = page.About(span, period, request.zone, request.client, [note for note in notes if note])
            html = page.render(connection, about)
            Path(place, "report.html").write_text(html, encoding="utf-8")
            _publish(Path(place), request.out, folder)
        return page.sentence(connection, request.client), f"{request.out.rstrip('/')}/{folder}/report.html"


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
    connection.execute(f"CREATE MACRO harmless(name) AS {HARMLESS}")
    written = ", ".join(f"harmless({name}) AS {name}" for name in _NAMES)
    times = ", ".join(
        f"strftime({name}, '{_TIME}') AS {name}"
        for name in ("BillingPeriodStart", "BillingPeriodEnd", "ChargePeriodStart", "ChargePeriodEnd")
    )
    connection.execute(
        f"COPY (SELECT * REPLACE ({times}, {written}) FROM chargeback) TO '{quoted('chargeback.csv')}' "
        "(FORMAT csv, HEADER)"
    )


def _publish(files: Path, out: str, folder: str) -> None:
    """Move the files to their directory; they replace an earlier report of the same period."""
    try:
        if (root := warehouse.on_disk(out)) is not None:
            target = root / folder
            unfinished = root / f".unfinished-{folder.replace('/', '-')}"
            shutil.rmtree(unfinished, ignore_errors=True)
            shutil.copytree(files, unfinished)
            shutil.rmtree(target, ignore_errors=True)
            target.parent.mkdir(parents=True, exist_ok=True)
            unfinished.rename(target)
            return
        import pyarrow.fs as pafs

        store, place = warehouse.located(out)
        store.create_dir(f"{place}/{folder}")
        store.delete_dir_contents(f"{place}/{folder}")
        pafs.copy_files(str(files), f"{place}/{folder}", pafs.LocalFileSystem(), store)
    except OSError as error:
        raise AnalysisError(f"--out: {out} cannot be written: {error}") from None
