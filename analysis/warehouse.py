"""The tables of gold, as DuckDB reads them; from S3 or HDFS Arrow brings them: they are small."""

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.fs as pafs

from analysis.errors import AnalysisError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

TABLES: Final = ("client", "charged", "counters", "readings", "muted", "moments", "shared", "users", "documents")
"""``analysis.gold`` has their columns."""
HOUR: Final = timedelta(hours=1)
_PLACES: Final = pa.schema([("date", pa.date32()), ("hour", pa.int32())])
_LISTED_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Period:
    """Whole UTC hours; None: from the first one, or to the last one there is."""

    begin: datetime | None = None
    end: datetime | None = None

    @classmethod
    def around(cls, begin: datetime | None, end: datetime | None) -> "Period":
        """Return the hours that have anything of a time span: gold has nothing shorter."""
        first = begin and begin.replace(minute=0, second=0, microsecond=0)
        last = end and (end - timedelta(microseconds=1)).replace(minute=0, second=0, microsecond=0) + HOUR
        return cls(first, last)

    def has(self, hour: datetime) -> bool:
        return (self.begin is None or self.begin <= hour) and (self.end is None or hour < self.end)


@dataclass(frozen=True, slots=True)
class Gold:
    """The hours that tables were made of, and the batches of rows in each."""

    warehouse: str
    files: pafs.FileSystem
    root: str
    hours: Mapping[datetime, Sequence[str]]
    days: frozenset[datetime]
    """The dates that have tables of their own, made of all their hours."""

    def newest(self, now: datetime) -> datetime:
        """Return the newest hour that has begun: a proxy whose clock is ahead does not move it."""
        return max((hour for hour in self.hours if hour <= now), default=max(self.hours))

    def behind(self, period: Period) -> dict[datetime, int]:
        """Return the hours whose tables lack rows, and how many batches of these are not in them."""
        dates = [_time(f"{each}/hour=0") for each in _names(self.files, f"{self.root}/usage", "date=")]
        near = [date for date in dates if any(period.has(hour) for hour in (date + each * HOUR for each in range(24)))]
        with ThreadPoolExecutor(_LISTED_AT_ONCE) as pool:
            of_dates = pool.map(
                lambda date: _names(self.files, f"{self.root}/usage/date={date:%Y-%m-%d}", "hour="), near
            )
            places = [
                (date + int(name.removeprefix("hour=")) * HOUR, f"{self.root}/usage/date={date:%Y-%m-%d}/{name}")
                for date, names in zip(near, of_dates, strict=True)
                for name in names
            ]
            wanted = [(hour, place) for hour, place in places if period.has(hour)]
            batches = pool.map(lambda each: _names(self.files, each[1], "batch="), wanted)
            found = {
                hour: len({name.removeprefix("batch=") for name in names} ^ set(self.hours.get(hour, ())))
                for (hour, _), names in zip(wanted, batches, strict=True)
            }
        return {hour: count for hour, count in found.items() if count}

    def show(
        self, connection: "DuckDBPyConnection", period: Period, tables: Iterable[str], *, hourly: bool = False
    ) -> bool:
        """Make a view of each table in the connection's schema; return whether anything of the period is stored.

        All have ``date``, and ``hour``: null where a day's tables are read, which ``hourly`` avoids.
        """
        hours = [hour for hour in sorted(self.hours) if period.has(hour)]
        dates = {hour.replace(hour=0) for hour in hours}
        whole = {
            date
            for date in dates & self.days
            if not hourly and all(period.has(hour) for hour in self.hours if hour.replace(hour=0) == date)
        }
        days = [f"date={date:%Y-%m-%d}" for date in sorted(whole)]
        rest = [f"date={hour:%Y-%m-%d}/hour={hour:%H}" for hour in hours if hour.replace(hour=0) not in whole]
        for table in tables:
            gold = f"{self.root}/gold/{table}"
            parts = [_parquet(self.files, f"{gold}_day", days), _parquet(self.files, f"{gold}_hour", rest)]
            if any(parts):
                _show(connection, table, self.files, [part for part in parts if part])
        return bool(hours)


def gold(warehouse: str) -> Gold:
    """Return what gold a warehouse has. Raises AnalysisError where there is none."""
    files, root = located(warehouse)
    hours: dict[datetime, Sequence[str]] = {}
    days = set()
    try:
        for made in files.get_file_info(pafs.FileSelector(f"{root}/gold/made", allow_not_found=True)):
            if made.extension != "json":
                continue
            with files.open_input_stream(made.path) as stream:
                said = json.loads(stream.read())
            date = made.base_name.removesuffix(".json")
            hours |= {_time(f"{date}/hour={hour}"): batches for hour, batches in said["hours"].items()}
            if said["hours"] and sorted(said["hours"]) == sorted(said["day"] or ()):
                days.add(_time(f"{date}/hour=0"))
        if not hours:
            _refuse(files, root, warehouse)
    except OSError as error:
        raise AnalysisError(f"{warehouse} cannot be read: {error}") from None
    return Gold(warehouse, files, root, hours, frozenset(days))


def _refuse(files: pafs.FileSystem, root: str, warehouse: str) -> None:
    if not _names(files, f"{root}/usage", "date="):
        raise AnalysisError(f"{warehouse}: there are no usage records here: `sluice analyze ingest` stores them")
    raise AnalysisError(
        f"{warehouse}: rows are stored, and gold tables are not made of them yet: "
        f"run `sluice analyze ingest --once` on this warehouse, without --no-gold"
    )


def opened(warehouse: str, period: Period, tables: Iterable[str]) -> "DuckDBPyConnection":
    """Return a connection with a view of each of ``tables``, of a period (``analysis.gold`` has their columns).

    Raises AnalysisError where there is no gold, or none of the period.
    """
    connection = connected()
    found = gold(warehouse)
    if not found.show(connection, period, tables):
        raise nothing(found)
    return connection


def nothing(found: Gold) -> AnalysisError:
    """Return the error of a period without records."""
    first, last = min(found.hours), max(found.hours) + HOUR
    return AnalysisError(
        f"{found.warehouse}: there are no usage records in the period: what is stored is of "
        f"{first:%Y-%m-%dT%H:%M} to {last:%Y-%m-%dT%H:%M} UTC (--from, --to)"
    )


def connected() -> "DuckDBPyConnection":
    """Return a database in memory, which spills to the machine's temporary directory."""
    import duckdb

    connection = duckdb.connect(config={"memory_limit": "1GB", "preserve_insertion_order": False})
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def located(place: str) -> tuple[pafs.FileSystem, str]:
    """Return the file system of a path or URI, and the path there. Raises AnalysisError."""
    scheme, colon, _ = place.partition("://")
    if not colon:
        return pafs.LocalFileSystem(), str(Path(place.removeprefix("file:")).resolve())
    try:
        files, path = pafs.FileSystem.from_uri(f"s3{place[3:]}" if scheme == "s3a" else place)
    except (OSError, ValueError) as error:
        raise AnalysisError(f"{place}: {error}") from None
    return files, path.rstrip("/")


def _time(place: str) -> datetime:
    """``date=2026-03-01/hour=07``."""
    date, _, hour = place.removeprefix("date=").partition("/hour=")
    return datetime.fromisoformat(date).replace(tzinfo=UTC, hour=int(hour))


def _names(files: pafs.FileSystem, folder: str, begins: str) -> list[str]:
    found = files.get_file_info(pafs.FileSelector(folder, allow_not_found=True))
    return [each.base_name for each in found if each.base_name.startswith(begins)]


def _parquet(files: pafs.FileSystem, root: str, folders: Sequence[str]) -> list[str]:
    def listed(folder: str) -> list[str]:
        found = files.get_file_info(pafs.FileSelector(f"{root}/{folder}", allow_not_found=True))
        return [
            each.path for each in found if each.extension == "parquet" and not each.base_name.startswith((".", "_"))
        ]

    with ThreadPoolExecutor(_LISTED_AT_ONCE) as pool:
        return [path for paths in pool.map(listed, folders) for path in paths]


def _show(connection: "DuckDBPyConnection", table: str, files: pafs.FileSystem, parts: Sequence[list[str]]) -> None:
    """Make a view of files on a disk, and a table of those elsewhere: a query would bring them again each time."""
    if isinstance(files, pafs.LocalFileSystem):
        sources = list(map(_read, parts))
        connection.execute(f"CREATE VIEW {table} AS {_together(sources)}")
        return
    from pyarrow import dataset  # it imports pandas: half a second

    sources = []
    for number, paths in enumerate(parts):
        partitions = dataset.partitioning(_PLACES, flavor="hive")
        brought = dataset.dataset(paths, format="parquet", filesystem=files, partitioning=partitions)
        connection.register(f"brought_{number}", brought)
        sources.append(f"brought_{number}")
    connection.execute(f"CREATE TABLE {table} AS {_together(sources)}")


def _read(paths: list[str]) -> str:
    names = ", ".join("'{}'".format(path.replace("'", "''")) for path in paths)
    types = "{'date': DATE, 'hour': INTEGER}" if "/hour=" in paths[0] else "{'date': DATE}"
    return f"read_parquet([{names}], union_by_name = true, hive_partitioning = true, hive_types = {types})"


def _together(sources: Iterable[str]) -> str:
    return " UNION ALL BY NAME ".join(f"SELECT * FROM {source}" for source in sources)
