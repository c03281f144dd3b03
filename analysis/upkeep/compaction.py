"""Closed hours of the table in few large files, beside running ingestions and readers.

An hour at a time: its batches that are over become files aside, which are read again and compared; then they take the
batches' place (``aside``). Those of different streams stay apart, and those that came late from those that did not: it
is by the names of batches that a report tells them. The table knows a document by its key and its hour, whatever batch
it is of: one that an ingestion reads again is found to be stored.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from analysis.errors import RunError
from analysis.spark.folder import Entry, Folder
from analysis.table.swaps import Swap
from analysis.upkeep.aside import Aside, recover, remove_aside
from analysis.upkeep.batches import Batches, committed_of, compacted, parts
from analysis.upkeep.lock import Lock
from analysis.upkeep.rewriting import columns_of, proof_of, rewrite
from analysis.upkeep.room import remove_left, room

_LARGE: Final = 0.5
"""Of the target: a batch whose files have as much is left as it is."""


@dataclass(frozen=True, slots=True)
class CompactRequest:
    """Which hours, and how. ``older_s`` is since the end of an hour."""

    older_s: int
    target_bytes: int
    grace_s: int
    dry_run: bool = False


@dataclass(slots=True)
class Compacted:
    """What a run came to."""

    hours: int = 0
    files: int = 0
    """Before."""
    size_bytes: int = 0
    """Likewise."""
    files_made: int = 0
    bytes_made: int = 0
    rows: int = 0
    removed_bytes: int = 0
    """Of files that an earlier run had set aside."""


@dataclass(slots=True)
class _Hour:
    """An hour that is closed, or some batches of one."""

    date: str
    hour: int
    batches: dict[str, list[Entry]] = field(default_factory=dict)

    @property
    def place(self) -> str:
        return f"date={self.date}/hour={self.hour:02d}"

    @property
    def files(self) -> list[Entry]:
        return [file for files in self.batches.values() for file in files]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


class Compaction:
    """Of one warehouse. ``tell`` gets a line about each hour; ``now_s`` is the wall clock."""

    def __init__(
        self,
        warehouse: Folder,
        usage: Folder,
        request: CompactRequest,
        tell: Callable[[str], None],
        now_s: Callable[[], float],
    ) -> None:
        self._warehouse = warehouse
        self._usage = usage
        self._request = request
        self._tell = tell
        self._now_s = now_s

    def run(self) -> Compacted:
        """Compact what is due. Raises AnalysisError where another process is at it, RunError where rows differ."""
        found = Compacted()
        if self._request.dry_run:
            for hour in self._due():
                self._note(found, hour)
                self._tell(f"{hour.place}: {_said(len(hour.files), hour.size_bytes)} would be compacted")
            return found
        with Lock(self._usage, "compact", self._now_s) as lock:
            recover(self._usage)
            remove_left()
            due = list(self._due())
            for number, hour in enumerate(due, 1):
                self._note(found, hour)
                files, size_bytes = found.files_made, found.bytes_made
                self._compact(hour, found, lock)
                made = _said(found.files_made - files, found.bytes_made - size_bytes)
                self._tell(
                    f"{number} of {len(due)}, {hour.place}: {_said(len(hour.files), hour.size_bytes)}, now {made}"
                )
            found.removed_bytes = remove_aside(self._usage, self._now_s() - self._request.grace_s)
        return found

    def _note(self, found: Compacted, hour: _Hour) -> None:
        found.hours += 1
        found.files += len(hour.files)
        found.size_bytes += hour.size_bytes

    def _due(self) -> Iterator[_Hour]:
        """Return what of closed hours would have fewer files, the oldest first: batches that may become one."""
        hours = [_hours_of(self._usage, date) for date in self._usage.names("date=*")]
        closed = self._closed([hour for of_date in hours for hour in of_date])
        known = Batches(
            committed_of(self._warehouse),
            ((hour.place, batch) for of_date in hours for hour in of_date for batch in hour.batches),
        )
        for hour in closed:
            alike: dict[tuple[str, bool], _Hour] = {}
            for name, files in hour.batches.items():
                if known.is_over(name) and not self._is_large(files):
                    key = parts(name)[0], known.is_late(name, hour.place)
                    alike.setdefault(key, _Hour(hour.date, hour.hour)).batches[name] = files
            for wanted in alike.values():
                if len(wanted.files) > max(1, round(wanted.size_bytes / self._request.target_bytes)):
                    yield wanted

    def _closed(self, hours: Sequence[_Hour]) -> list[_Hour]:
        """Leave out the newest hour, and those that ended not long enough ago."""
        until = datetime.fromtimestamp(self._now_s() - self._request.older_s, UTC) - timedelta(hours=1)
        last = f"date={until:%Y-%m-%d}/hour={until:%H}"
        return [hour for hour in sorted(hours, key=lambda hour: hour.place)[:-1] if hour.place <= last]

    def _is_large(self, files: Sequence[Entry]) -> bool:
        return sum(file.size_bytes for file in files) >= _LARGE * self._request.target_bytes * len(files)

    def _compact(self, hour: _Hour, found: Compacted, lock: Lock) -> None:
        name = compacted(hour.batches)
        made = Aside.being_made(name)
        written: list[str] = []

        def keep(file: Path) -> None:
            lock.check()
            written.append(f"{made}/part-{len(written):05}.parquet")
            found.bytes_made += file.stat().st_size
            self._usage.put(file, written[-1])

        with self._local([entry.path for entry in hour.files]) as files:
            columns = columns_of(files)
            before = rewrite(files, columns, self._request.target_bytes, keep)
        with self._local(written) as files:
            after = proof_of(files, columns)
        lock.check()
        if after != before:
            raise RunError(f"{hour.place}: {before} became {after}; nothing was changed")
        now = _hours_of(self._usage, f"date={hour.date}")
        there = next((each.batches for each in now if each.hour == hour.hour), {})
        if any(there.get(batch) != files for batch, files in hour.batches.items()):
            raise RunError(f"{hour.place} was changed by another program meanwhile; nothing was changed here")
        old = {batch: len(files) for batch, files in hour.batches.items()}
        swap = Swap(hour.date, hour.hour, old, name, len(written))
        Aside(self._usage, self._now_s(), name).swap(swap, made)
        found.files_made += len(written)
        found.rows += before.rows

    @contextmanager
    def _local(self, files: Sequence[str]) -> Iterator[list[Path]]:
        """Have files on this machine's disk."""
        if self._usage.is_on_disk:
            yield [self._usage.on_disk(file) for file in files]
            return
        with room() as folder:
            here = [folder / f"{number}.parquet" for number in range(len(files))]
            for file, copy in zip(files, here, strict=True):
                self._usage.fetch(file, copy)
            yield here


def _hours_of(usage: Folder, date: str) -> list[_Hour]:
    hours: dict[str, _Hour] = {}
    for entry in usage.entries(f"{date}/hour=*/batch=*/*.parquet"):
        _, hour, batch, _ = entry.path.split("/")
        found = hours.setdefault(hour, _Hour(date.removeprefix("date="), int(hour.removeprefix("hour="))))
        found.batches.setdefault(batch.removeprefix("batch="), []).append(entry)
    return list(hours.values())


def _said(files: int, size_bytes: int) -> str:
    return f"{files:,} {'file' if files == 1 else 'files'} of {size_bytes / 1e6:,.1f} MB"
