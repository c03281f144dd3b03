"""The tables of gold, as DuckDB reads them; from S3 or HDFS Arrow brings them: they are small."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow.fs as pafs
from pyarrow import dataset

from analysis.errors import AnalysisError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_HOUR: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Period:
    """Whole UTC hours; None: from the first one, or to the last one there is."""

    begin: datetime | None = None
    end: datetime | None = None

    @classmethod
    def around(cls, begin: datetime | None, end: datetime | None) -> "Period":
        """Return the hours that have anything of a time span: gold has nothing shorter."""
        first = begin and begin.replace(minute=0, second=0, microsecond=0)
        last = end and (end - timedelta(microseconds=1)).replace(minute=0, second=0, microsecond=0) + _HOUR
        return cls(first, last)

    def has(self, hour: datetime) -> bool:
        return (self.begin is None or self.begin <= hour) and (self.end is None or hour < self.end)


def opened(warehouse: str, period: Period, tables: Iterable[str]) -> "DuckDBPyConnection":
    """Return a connection with a view of each of ``tables``, of a period (``analysis.gold`` has their columns).

    Raises AnalysisError where there is no gold, or none of the period.
    """
    import duckdb

    files, root = located(warehouse)
    gold = f"{root}/gold"
    try:
        places = list(_places(files, gold, period))
        if not places:
            raise AnalysisError(
                f"{warehouse}: there are no usage records in the period: take another one with --from and --to; gold of what "
                "is stored is made by `sluice analyze ingest`"
            )
        connection = duckdb.connect()
        for table in tables:
            paths = [path for place in places for path in _parquet(files, place.format(table=f"{gold}/{table}"))]
            _show(connection, table, files, paths)
    except OSError as error:
        raise AnalysisError(f"{warehouse} cannot be read: {error}") from None
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


def _places(files: pafs.FileSystem, gold: str, period: Period) -> Iterator[str]:
    """Yield the folders of a period: of days that are made of all their hours and wholly in it, else of hours."""
    for made in files.get_file_info(pafs.FileSelector(f"{gold}/made", allow_not_found=True)):
        date = made.base_name.removesuffix(".json")
        with files.open_input_stream(made.path) as stream:
            said = json.loads(stream.read())
        midnight = datetime.fromisoformat(date.removeprefix("date=")).replace(tzinfo=UTC)
        wanted = sorted(hour for hour in said["hours"] if period.has(midnight + int(hour) * _HOUR))
        if wanted and wanted == sorted(said["hours"]) == sorted(said["day"] or ()):
            yield f"{{table}}_day/{date}"
        else:
            yield from (f"{{table}}_hour/{date}/hour={hour}" for hour in wanted)


def _parquet(files: pafs.FileSystem, folder: str) -> list[str]:
    found = files.get_file_info(pafs.FileSelector(folder, allow_not_found=True))
    return [each.path for each in found if each.extension == "parquet" and not each.base_name.startswith((".", "_"))]


def _show(connection: "DuckDBPyConnection", table: str, files: pafs.FileSystem, paths: list[str]) -> None:
    """Make a view of files on a disk, and a table of those elsewhere: a query would bring them again each time."""
    if isinstance(files, pafs.LocalFileSystem):
        names = ", ".join("'{}'".format(path.replace("'", "''")) for path in paths)
        connection.execute(f"CREATE VIEW {table} AS FROM read_parquet([{names}], union_by_name = true)")
        return
    connection.register("brought", dataset.dataset(paths, format="parquet", filesystem=files))
    connection.execute(f"CREATE TABLE {table} AS FROM brought")
