"""What is kept of days that are over, so that a report of many of them reads the rows of the others alone.

``<warehouse>/summaries/date=YYYY-MM-DD/<digest>/<table>/*.parquet``, and beside these, written last, ``made.json``.
The digest is of the files that the tables were made of: as soon as one comes, goes, or is another one, the day is read
from its rows again. ``upkeep.summing`` makes them; ``metrics`` say what they keep.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from analysis.spark.folder import Folder
from analysis.table.lateness import late_files
from analysis.table.parquet import encoded
from quotas.kinds import QuotaKind

SUMMARIES: Final = "summaries"
MADE: Final = "made.json"
VERSION: Final = 1
"""Of what is kept; another one with every change of what ``metrics`` keep, and of how it is reckoned."""
_KINDS: Final = tuple(kind.row.word for kind in QuotaKind)
_DAY: Final = timedelta(days=1)
_EPOCH: Final = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Listed:
    """A file of the usage table."""

    path: str
    size_bytes: int
    date: str
    """YYYY-MM-DD"""
    hour: int


def day_of(name: str) -> int:
    """Return the days since 1970 of YYYY-MM-DD."""
    return (date.fromisoformat(name) - _EPOCH).days


def whole_days(files: Sequence[Listed], begin: datetime | None, end: datetime | None) -> list[str]:
    """Return the dates of files that are in a period as a whole (aware; None: no bound), in order."""
    found = []
    for name in sorted({file.date for file in files}):
        first = datetime.fromisoformat(name).replace(tzinfo=UTC)
        if (begin is None or begin <= first) and (end is None or first + _DAY <= end):
            found.append(name)
    return found


def digests(files: Sequence[Listed], dates: Sequence[str]) -> dict[str, str]:
    """Return by date what tells its files from any others.

    ``files`` are those of the dates, and of an hour before and after: what is in force at midnight began before it, and
    what is late is told by what came after.
    """
    parts: dict[str, list[str]] = {name: [] for name in dates}
    late = late_files(file.path for file in files)
    for file in files:
        # From the date on: a warehouse may be moved.
        said = f"{'/'.join(file.path.split('/')[-4:])} {file.size_bytes}"
        if file.date in parts:
            parts[file.date].append(f"{said} {file.path in late}")
        if file.hour == 23 and (after := f"{date.fromisoformat(file.date) + _DAY}") in parts:
            parts[after].append(f"{said} before")
    return {
        name: hashlib.sha256("\n".join([f"{VERSION} {_KINDS}", *sorted(said)]).encode()).hexdigest()[:16]
        for name, said in parts.items()
    }


def made(warehouse: Folder) -> set[tuple[str, str]]:
    """Return date and digest of each summary that is whole."""
    if not warehouse.exists(SUMMARIES):
        return set()
    found = (entry.path.split("/") for entry in warehouse.entries(f"{SUMMARIES}/date=*/*/{MADE}"))
    return {(day.removeprefix("date="), digest) for _, day, digest, _ in found}


def place_of(day: str, digest: str) -> str:
    """Return the directory of a summary in the warehouse."""
    return f"{SUMMARIES}/date={day}/{digest}"


def remove(warehouse: Folder, place: str) -> None:
    """Remove a summary: first what makes it count, for a kill may leave any part of the rest."""
    warehouse.remove(f"{place}/{MADE}")
    warehouse.remove(place)


def opened(content: pa.Buffer) -> Iterator[pa.Table]:
    """Yield the tables of a file of what is kept: texts as dictionaries, as those of rows are."""
    file = pq.ParquetFile(pa.BufferReader(content))
    for group in range(file.num_row_groups):
        yield encoded(file.read_row_group(group, use_threads=False))
