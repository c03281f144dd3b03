"""Sums of days that are over, made once: a report of a month then costs what is new (``table.summaries``).

A day at a time: what ``metrics`` keep of its rows becomes files beside, which are put in place by one rename, and count
as soon as ``made.json`` is there. Killed at any moment, it goes on with the day that was not done.
"""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql import SparkSession

from analysis.metrics import keepings, period
from analysis.table import reading, summaries
from analysis.table import warehouse as stored
from analysis.table.summaries import MADE, SUMMARIES
from analysis.upkeep.lock import Lock

_BEING_MADE: Final = f"{SUMMARIES}/.being-made"
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class SumUpRequest:
    """Which days: those that ended ``older_s`` ago, or earlier."""

    older_s: int
    grace_s: int
    """For so long sums stay that are no longer those of their day: a report may be reading them."""
    dry_run: bool = False


@dataclass(slots=True)
class SummedUp:
    """What a run came to."""

    days: int = 0
    rows: int = 0
    size_bytes: int = 0
    there: int = 0
    """Days that were summed up before."""
    changed: list[str] = field(default_factory=list)
    """Days that ingestion changed meanwhile: the next run has them."""
    removed: int = 0
    """Sums that were no longer those of their day."""


class SummingUp:
    """Of one warehouse. ``tell`` gets a line about each day; ``now_s`` is the wall clock."""

    def __init__(
        self,
        spark: SparkSession,
        warehouse: str,
        request: SumUpRequest,
        tell: Callable[[str], None],
        now_s: Callable[[], float],
    ) -> None:
        self._spark = spark
        self._place = warehouse
        self._warehouse, self._usage = stored.folders(spark, warehouse)
        self._request = request
        self._tell = tell
        self._now_s = now_s

    def run(self) -> SummedUp:
        """Sum up what is due. Raises AnalysisError where another process is at it, or a file cannot be read."""
        found = SummedUp()
        if self._request.dry_run:
            due = self._due(found)
            for day in due:
                self._tell(f"{day} would be summed up")
            found.days = len(due)
            return found
        with Lock(self._usage, "summarize", self._now_s) as lock:
            self._warehouse.remove(_BEING_MADE)
            due = self._due(found)
            for number, (day, digest) in enumerate(due.items(), 1):
                self._sum_up(day, digest, found, lock, f"{number} of {len(due)}, {day}")
            self._remove_old(found)
        return found

    def _due(self, found: SummedUp) -> dict[str, str]:
        """Return the digests of days that are over and not summed up, the oldest first."""
        until = datetime.fromtimestamp(self._now_s() - self._request.older_s, UTC)
        digests = self._digests(None, until)
        made = summaries.made(self._warehouse)
        found.there = sum((day, digest) in made for day, digest in digests.items())
        return {day: digest for day, digest in digests.items() if (day, digest) not in made}

    def _digests(self, begin: datetime | None, end: datetime) -> dict[str, str]:
        files = stored.files(self._spark, self._place, begin, end).all()
        return summaries.digests(files, summaries.whole_days(files, begin, end))

    def _sum_up(self, day: str, digest: str, found: SummedUp, lock: Lock, said: str) -> None:
        begin = datetime.fromisoformat(day).replace(tzinfo=UTC)
        end = begin + _DAY
        usage = stored.usage(self._spark, self._place, begin, end, with_summaries=False)
        of_day = period.look(usage)
        if of_day is None:
            self._tell(f"{said}: no rows")
            return
        kept = keepings.of_day(usage, of_day)
        self._write(reading.files_of(usage, kept, of_day.rows, of_day.longest_window_ms), lock)
        if self._digests(begin, end).get(day) != digest:
            found.changed.append(day)
            self._warehouse.remove(_BEING_MADE)
            self._tell(f"{said}: changed by an ingestion meanwhile, the next run has it")
            return
        place = summaries.place_of(day, digest)
        self._warehouse.move(_BEING_MADE, place)
        # Last, and in place: where renaming is copying, all else is there by then.
        self._warehouse.write(f"{place}/{MADE}", json.dumps({"rows": of_day.rows}) + "\n")
        size_bytes = self._warehouse.size_bytes(place)
        found.days += 1
        found.rows += of_day.rows
        found.size_bytes += size_bytes
        self._tell(f"{said}: {of_day.rows:,} rows, {size_bytes / 1e6:,.1f} MB")

    def _write(self, files: Iterator[tuple[str, bytes]], lock: Lock) -> None:
        for number, (name, content) in enumerate(files):
            lock.check()
            self._warehouse.write(f"{_BEING_MADE}/{name}/part-{number:05}.parquet", content)

    def _remove_old(self, found: SummedUp) -> None:
        """Remove what counts no more, when reports that had begun with it are over; at once what never counted."""
        digests = self._digests(None, datetime.fromtimestamp(self._now_s(), UTC))
        before_s = self._now_s() - self._request.grace_s
        made = self._warehouse.entries(f"{SUMMARIES}/date=*/*/{MADE}")
        since_s = {entry.path.rpartition("/")[0]: entry.modified_s for entry in made}
        for entry in self._warehouse.entries(f"{SUMMARIES}/date=*/*"):
            if entry.path in since_s:
                day = entry.path.split("/")[1].removeprefix("date=")
                counts = summaries.place_of(day, digests[day]) if day in digests else None
                replaced_s = since_s[entry.path] if counts is None else since_s.get(counts, math.inf)
                if entry.path == counts or replaced_s > before_s:
                    continue
                found.removed += 1
            summaries.remove(self._warehouse, entry.path)
