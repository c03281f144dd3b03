"""Gold in DuckDB: views of files on a disk, or tables copied by Arrow from S3 or HDFS.

Arrow is not imported for a warehouse on a disk: that would take a fifth of a small report.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from analysis.errors import AnalysisError

if TYPE_CHECKING:
    import pyarrow.fs as pafs
    from duckdb import DuckDBPyConnection

TABLES: Final = ("client", "charged", "counters", "readings", "muted", "moments", "shared", "users", "documents")
"""``analysis.gold`` has their columns."""
HOUR: Final = timedelta(hours=1)
_PLACES: Final = {"date": "DATE", "hour": "INTEGER", "batch": "VARCHAR", "made": "VARCHAR"}
_LISTED_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Period:
    """Whole UTC hours; None: from the first stored one, or to the last."""

    begin: datetime | None = None
    end: datetime | None = None

    @classmethod
    def around(cls, begin: datetime | None, end: datetime | None) -> "Period":
        """Return the hours that overlap a time span."""
        first = begin and begin.replace(minute=0, second=0, microsecond=0)
        last = end and (end - timedelta(microseconds=1)).replace(minute=0, second=0, microsecond=0) + HOUR
        return cls(first, last)

    def has(self, hour: datetime) -> bool:
        return (self.begin is None or self.begin <= hour) and (self.end is None or hour < self.end)


class Version(NamedTuple):
    """A version of the tables of an hour or a day."""

    made: str
    """The name of its folders, ``made=…``."""
    sources: list[str]
    """The batches of an hour; the hours of a day."""


class Inventory(NamedTuple):
    """The versions of a date's tables."""

    hours: dict[str, Version]
    """By hour, 00 to 23."""
    day: Version | None = None
    """None: it is not over, or was made of other hours."""

    @classmethod
    def read(cls, text: bytes | str) -> "Inventory":
        """Read ``gold/made/date=….json``; one that was cut off, or is of an earlier form, lists nothing."""
        try:
            said = json.loads(text)
            hours = {f"{int(hour):02}": Version(**version) for hour, version in said["hours"].items()}
            return cls(hours, said["day"] and Version(**said["day"]))
        except (ValueError, TypeError, KeyError, AttributeError):
            return cls({})


@dataclass(frozen=True, slots=True)
class Gold:
    """One version of the gold tables of a warehouse, by hour and day: all readers of it find the same figures."""

    warehouse: str
    files: "Disk | Store"
    hours: Mapping[datetime, Version]
    days: Mapping[datetime, Version]
    """The dates with complete tables of the whole day."""

    def newest(self, now: datetime) -> datetime:
        """Return the newest hour that has begun: later ones are from proxies whose clocks are ahead."""
        return max((hour for hour in self.hours if hour <= now), default=max(self.hours))

    def behind(self, period: Period) -> dict[datetime, int]:
        """Return the hours that differ from the stored rows, and by how many batches."""
        near = [
            f"usage/{date}"
            for date in self.files.names("usage", "date=")
            if any(period.has(_time(date) + hours * HOUR) for hours in range(24))
        ]
        places = [f"{date}/{hour}" for date, hours in self._names(near, "hour=") for hour in hours]
        batches = self._names([place for place in places if period.has(_time(place))], "batch=")
        made_of = {hour: set(version.sources) for hour, version in self.hours.items()}
        found = {
            _time(hour): len({name.removeprefix("batch=") for name in names} ^ made_of.get(_time(hour), set()))
            for hour, names in batches
        }
        return {hour: count for hour, count in found.items() if count}

    def show(
        self, connection: "DuckDBPyConnection", period: Period, tables: Iterable[str], *, hourly: bool = False
    ) -> bool:
        """Create a view of each table in the connection's schema; return whether anything of the period is stored.

        Views have ``date`` and ``hour``; the hour is null for tables of a day, which ``hourly`` avoids.
        """
        hours = [hour for hour in sorted(self.hours) if period.has(hour)]
        dates = {hour.replace(hour=0) for hour in hours}
        whole = {
            date
            for date in dates & self.days.keys()
            if not hourly and all(period.has(hour) for hour in self.hours if hour.replace(hour=0) == date)
        }
        days = [f"date={date:%Y-%m-%d}/made={self.days[date].made}" for date in sorted(whole)]
        rest = [
            f"date={hour:%Y-%m-%d}/hour={hour:%H}/made={self.hours[hour].made}"
            for hour in hours
            if hour.replace(hour=0) not in whole
        ]
        for table in tables if hours else ():
            parts = [
                self._parquet([f"gold/{table}_day/{day}" for day in days]),
                self._parquet([f"gold/{table}_hour/{hour}" for hour in rest]),
            ]
            if sum(map(len, parts)) < len(days) + len(rest):
                raise AnalysisError(f"{self.warehouse}: gold changed while it was read: run this again")
            self.files.show(connection, table, [part for part in parts if part])
        return bool(hours)

    def show_rejected(self, connection: "DuckDBPyConnection") -> bool:
        """Create a view ``rejected`` of all rejected documents; return whether there are any."""
        paths = self._parquet([f"rejected/{batch}" for batch in self.files.names("rejected", "batch=")])
        if paths:
            self.files.show(connection, "rejected", [paths])
        return bool(paths)

    def _parquet(self, folders: Sequence[str]) -> list[str]:
        return [
            f"{folder}/{name}"
            for folder, names in self._names(folders)
            for name in names
            if name.endswith(".parquet") and not name.startswith((".", "_"))
        ]

    def _names(self, folders: Sequence[str], begins: str = "") -> list[tuple[str, list[str]]]:
        """Return each folder with the names in it."""
        with ThreadPoolExecutor(_LISTED_AT_ONCE) as pool:
            return list(zip(folders, pool.map(lambda folder: self.files.names(folder, begins), folders), strict=True))


def gold(warehouse: str) -> Gold:
    """Return the gold of a warehouse. Raises AnalysisError if there is none."""
    root = on_disk(warehouse)
    files = Store(*located(warehouse)) if root is None else Disk(root)
    hours: dict[datetime, Version] = {}
    days: dict[datetime, Version] = {}
    try:
        for name in files.names("gold/made", "date="):
            if not name.endswith(".json"):
                continue
            found = Inventory.read(files.read(f"gold/made/{name}"))
            date = _time(name.removesuffix(".json"))
            hours |= {date + int(hour) * HOUR: version for hour, version in found.hours.items()}
            if found.day is not None and sorted(found.hours) == sorted(found.day.sources):
                days[date] = found.day
        if not hours:
            _refuse(files, warehouse)
    except OSError as error:
        raise AnalysisError(f"{warehouse} cannot be read: {error}") from None
    return Gold(warehouse, files, hours, days)


def _refuse(files: "Disk | Store", warehouse: str) -> None:
    if not files.names("usage", "date="):
        raise AnalysisError(f"{warehouse}: there are no usage records here: `sluice analyze ingest` stores them")
    raise AnalysisError(
        f"{warehouse}: rows are stored, and gold tables are not made of them yet: "
        f"run `sluice analyze gold` on this warehouse"
    )


def opened(warehouse: str, period: Period, tables: Iterable[str]) -> "DuckDBPyConnection":
    """Return a connection with views of ``tables`` of a period. Raises AnalysisError if there is no gold of it."""
    connection = connected()
    found = gold(warehouse)
    if not found.show(connection, period, tables):
        raise nothing(found)
    return connection


def nothing(found: Gold) -> AnalysisError:
    """Return the error for a period without records."""
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


def on_disk(place: str) -> Path | None:
    """Return the directory of a path or ``file:`` URI, or None for another file system."""
    scheme, colon, path = place.partition("://")
    if colon and scheme != "file":
        return None
    return Path(path if colon else place.removeprefix("file:")).resolve()


def located(place: str) -> "tuple[pafs.FileSystem, str]":
    """Return the file system of a path or URI, and the path there. Raises AnalysisError."""
    import pyarrow.fs as pafs

    if (path := on_disk(place)) is not None:
        return pafs.LocalFileSystem(), str(path)
    try:
        files, found = pafs.FileSystem.from_uri(f"s3{place[3:]}" if place.startswith("s3a:") else place)
    except (OSError, ValueError) as error:
        raise AnalysisError(f"{place}: {error}") from None
    return files, found.rstrip("/")


@dataclass(frozen=True, slots=True)
class Disk:
    """A warehouse on a disk."""

    root: Path

    def names(self, folder: str, begins: str = "") -> list[str]:
        """Return the names in a folder, none if it does not exist."""
        try:
            return [each.name for each in (self.root / folder).iterdir() if each.name.startswith(begins)]
        except FileNotFoundError:
            return []

    def read(self, path: str) -> bytes:
        return (self.root / path).read_bytes()

    def show(self, connection: "DuckDBPyConnection", table: str, parts: Iterable[Sequence[str]]) -> None:
        """Create a view of files."""
        connection.execute(f"CREATE VIEW {table} AS {_union(map(self._read, parts))}")

    def _read(self, paths: Sequence[str]) -> str:
        names = ", ".join("'{}'".format(f"{self.root}/{path}".replace("'", "''")) for path in paths)
        types = ", ".join(f"'{name}': {type_}" for name, type_ in _PLACES.items() if f"/{name}=" in paths[0])
        read = f"read_parquet([{names}], union_by_name = true, hive_partitioning = true, hive_types = {{{types}}})"
        return f"(SELECT * EXCLUDE (made) FROM {read})" if "made" in types else read


@dataclass(frozen=True, slots=True)
class Store:
    """A warehouse in S3 or HDFS."""

    files: "pafs.FileSystem"
    root: str

    def names(self, folder: str, begins: str = "") -> list[str]:
        from pyarrow.fs import FileSelector

        found = self.files.get_file_info(FileSelector(f"{self.root}/{folder}", allow_not_found=True))
        return [each.base_name for each in found if each.base_name.startswith(begins)]

    def read(self, path: str) -> bytes:
        with self.files.open_input_stream(f"{self.root}/{path}") as stream:
            return bytes(stream.read())

    def show(self, connection: "DuckDBPyConnection", table: str, parts: Iterable[Sequence[str]]) -> None:
        """Create a table from files: each query of a view would download them."""
        import pyarrow as pa
        from pyarrow import dataset  # it imports pandas: half a second

        places = pa.schema([("date", pa.date32()), ("hour", pa.int32())])
        sources = []
        for number, paths in enumerate(parts):
            parquet = dataset.dataset(
                [f"{self.root}/{path}" for path in paths],
                format="parquet",
                filesystem=self.files,
                partitioning=dataset.partitioning(places, flavor="hive"),
            )
            connection.register(f"part_{number}", parquet)
            sources.append(f"part_{number}")
        connection.execute(f"CREATE TABLE {table} AS {_union(sources)}")


def _union(sources: Iterable[str]) -> str:
    return " UNION ALL BY NAME ".join(f"SELECT * FROM {source}" for source in sources)


def _time(place: str) -> datetime:
    """Read ``date=2026-03-01/hour=07``, with or without the hour."""
    date, _, hour = place.rpartition("date=")[2].partition("/hour=")
    return datetime.fromisoformat(date).replace(tzinfo=UTC, hour=int(hour or 0))
