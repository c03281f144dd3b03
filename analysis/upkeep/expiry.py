"""What is older than it is to be kept goes: hours of the table, rejected documents, reports beside the warehouse."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import uuid4

from analysis.spark.folder import Folder
from analysis.table.summaries import SUMMARIES
from analysis.upkeep.aside import Aside, recover, remove_aside
from analysis.upkeep.lock import Lock

_REJECTED: Final = "rejected/batch=*"
_SUMMARIES: Final = f"{SUMMARIES}/date=*"
_REPORTS: Final = ("report=*", "client=*/report=*")
_REPORT_ENDS: Final = re.compile(r"report=\w+-(\d{8}T\d{6}Z)")
_HOUR: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class ExpireRequest:
    """What is kept, and for how long what goes is still aside."""

    keep_s: int
    grace_s: int
    dry_run: bool = False


@dataclass(slots=True)
class Expired:
    """What a run came to."""

    before: datetime
    """What ended until then went."""
    hours: int = 0
    size_bytes: int = 0
    """Of the hours."""
    rejected: int = 0
    """Batches of rejected documents."""
    reports: int = 0
    summaries: int = 0
    """Days that were summed up."""
    removed_bytes: int = 0
    """Of files that were aside."""


class Expiry:
    """Of one warehouse. ``tell`` gets a line about all that goes; ``now_s`` is the wall clock.

    ``reports`` are the folders where reports go if nobody says where, and where earlier versions put them.
    """

    def __init__(
        self,
        warehouse: Folder,
        usage: Folder,
        reports: Sequence[Folder],
        request: ExpireRequest,
        tell: Callable[[str], None],
        now_s: Callable[[], float],
    ) -> None:
        self._warehouse = warehouse
        self._usage = usage
        self._reports = reports
        self._request = request
        self._tell = tell
        self._now_s = now_s

    def run(self) -> Expired:
        """Remove what is due. Raises AnalysisError where another process is at it."""
        if self._request.dry_run:
            return self._run(None)
        with Lock(self._usage, "expire", self._now_s) as lock:
            recover(self._usage)
            return self._run(lock)

    def _run(self, lock: Lock | None) -> Expired:
        hours = {each: self._usage.names(f"{each}/hour=*") for each in self._usage.names("date=*")}
        stored = [(date, hour) for date, of_date in hours.items() for hour in of_date]
        now = datetime.fromtimestamp(self._now_s(), UTC)
        # A clock that is wrong, or records that are of the future, must not make all the others old.
        begun = [each for each in stored if _begin(*each) <= now]
        newest = max(begun or stored, key=lambda each: _begin(*each), default=None)
        latest = now if newest is None else min(now, _begin(*newest) + _HOUR)
        found = Expired(latest - timedelta(seconds=self._request.keep_s))
        aside = Aside(self._usage, self._now_s(), f"expired-{uuid4().hex[:12]}")
        for date, of_date in hours.items():
            old = [hour for hour in of_date if (date, hour) != newest and _begin(date, hour) + _HOUR <= found.before]
            for place in [date] if old and old == of_date else [f"{date}/{hour}" for hour in old]:
                self._note(found, place, len(old) if place == date else 1)
                if lock is not None:
                    lock.check()
                    aside.take(place)
        self._remove_others(found)
        if not self._request.dry_run:
            found.removed_bytes = remove_aside(self._usage, self._now_s() - self._request.grace_s)
        return found

    def _note(self, found: Expired, place: str, hours: int) -> None:
        size_bytes = self._usage.size_bytes(place)
        found.hours += hours
        found.size_bytes += size_bytes
        self._tell(f"{place}: {hours} {'hour' if hours == 1 else 'hours'}, {size_bytes / 1e6:,.1f} MB")

    def _remove_others(self, found: Expired) -> None:
        """Remove what nobody reads for long: at once."""
        before_s = found.before.timestamp()
        rejected = [path for path, modified_s in self._rejected().items() if modified_s < before_s]
        reports = [each for each in self._all_reports() if _is_until(each[1], found.before)]
        days = [name for name in self._warehouse.names(_SUMMARIES) if _begin(name, "hour=24") <= found.before]
        summed_up = [f"{SUMMARIES}/{name}" for name in days]
        found.rejected, found.reports, found.summaries = len(rejected), len(reports), len(summed_up)
        for folder, place in [*((self._warehouse, place) for place in (*rejected, *summed_up)), *reports]:
            self._tell(place)
            if not self._request.dry_run:
                folder.remove(place)
                client, inside, _ = place.rpartition("/")
                if client.startswith("client=") and inside and not folder.names(f"{client}/*"):
                    folder.remove(client)  # whose name says who it was

    def _all_reports(self) -> list[tuple[Folder, str]]:
        return [(folder, each.path) for folder in self._reports for place in _REPORTS for each in folder.entries(place)]

    def _rejected(self) -> dict[str, float]:
        """Return when batches were written: by their files, for on an object store a directory is always new."""
        found = {each.path: each.modified_s for each in self._warehouse.entries(_REJECTED)}
        files: dict[str, list[float]] = {}
        for each in self._warehouse.entries(f"{_REJECTED}/*"):
            files.setdefault(each.path.rpartition("/")[0], []).append(each.modified_s)
        return found | {place: max(times) for place, times in files.items()}


def _begin(date: str, hour: str) -> datetime:
    day = datetime.strptime(date, "date=%Y-%m-%d").replace(tzinfo=UTC)
    return day + timedelta(hours=int(hour.removeprefix("hour=")))


def _is_until(report: str, before: datetime) -> bool:
    ends = _REPORT_ENDS.fullmatch(report.rpartition("/")[2])
    return ends is not None and datetime.strptime(ends[1], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC) <= before
