"""Expiry: removes old hours of rows, documents and gold, and old rejected documents, under the lock."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql import SparkSession

from analysis.gold import inventory
from analysis.gold.tables import TABLES
from analysis.spark.folder import Folder
from analysis.upkeep.compaction import recover
from analysis.upkeep.lock import Lock
from quotas.texts import size

_HOUR: Final = timedelta(hours=1)
_TABLES: Final = ("usage", "documents", *(f"gold/{table.name}_hour" for table in TABLES))
"""Tables with partitions of date and hour."""


@dataclass(slots=True)
class Expired:
    """The result of a run."""

    before: datetime
    """Hours that ended until then were removed."""
    hours: int = 0
    size_bytes: int = 0
    """The size of their rows."""
    rejected: int = 0
    """The number of batches of rejected documents."""


class Expiry:
    """Expires hours of a warehouse. ``tell`` gets a line about each; ``now_s`` is the wall clock."""

    def __init__(
        self, spark: SparkSession, warehouse: str, tell: Callable[[str], None], now_s: Callable[[], float]
    ) -> None:
        self._spark = spark
        self._root = warehouse.rstrip("/")
        self._folder = Folder(spark, warehouse)
        self._tell = tell
        self._now_s = now_s

    def run(self, keep_s: int, *, dry_run: bool = False) -> Expired:
        """Remove what is older than ``keep_s``. Raises AnalysisError if another program has the lock."""
        if dry_run:
            return self._run(keep_s, None)
        with Lock(Folder(self._spark, f"{self._root}/usage"), "expire", self._now_s) as lock:
            recover(self._folder)
            return self._run(keep_s, lock)

    def _run(self, keep_s: int, lock: Lock | None) -> Expired:
        stored = self._hours("usage")
        now = datetime.fromtimestamp(self._now_s(), UTC)
        # Records from the future, by a wrong clock, must not make all others old.
        begun = [each for each in stored if _begin(each) <= now] or stored
        newest = max(begun, key=_begin, default=None)
        latest = now if newest is None else min(now, _begin(newest) + _HOUR)
        found = Expired(latest - timedelta(seconds=keep_s))

        def is_old(place: str) -> bool:
            return place != newest and _begin(place) + _HOUR <= found.before

        for place in filter(is_old, stored):
            size_bytes = self._folder.size_bytes(f"usage/{place}")
            found.hours += 1
            found.size_bytes += size_bytes
            self._tell(f"{place}: {size(size_bytes)}")
        if lock is not None:
            lock.check()
            for date in {place.partition("/")[0] for table in _TABLES for place in filter(is_old, self._hours(table))}:
                self._remove(date, is_old)
        found.rejected = self._reject(found.before, dry_run=lock is None)
        return found

    def _remove(self, date: str, is_old: Callable[[str], bool]) -> None:
        known = inventory.read(self._folder, date)
        left = {hour: batches for hour, batches in known.hours.items() if not is_old(f"{date}/hour={hour}")}
        inventory.write(self._folder, date, inventory.Inventory(left))
        for each in TABLES:
            self._folder.remove(f"gold/{each.name}_day/{date}")
        for table in _TABLES:
            for hour in self._folder.names(f"{table}/{date}/hour=*"):
                if is_old(f"{date}/{hour}"):
                    self._folder.remove(f"{table}/{date}/{hour}")
            if not self._folder.names(f"{table}/{date}/hour=*"):
                self._folder.remove(f"{table}/{date}")
        if not left:
            self._folder.remove(f"gold/made/{date}.json")

    def _reject(self, before: datetime, *, dry_run: bool) -> int:
        """Remove batches by the time of their files: object stores have no time of a directory."""
        files = self._folder.entries("rejected/batch=*/*.parquet")
        new = {each.path.rpartition("/")[0] for each in files if each.modified_s >= before.timestamp()}
        old = {each.path.rpartition("/")[0] for each in files} - new
        for place in sorted(old):
            self._tell(place)
            if not dry_run:
                self._folder.remove(place)
        return len(old)

    def _hours(self, table: str) -> list[str]:
        return [each.path.removeprefix(f"{table}/") for each in self._folder.entries(f"{table}/date=*/hour=*")]


def _begin(place: str) -> datetime:
    return datetime.strptime(place, "date=%Y-%m-%d/hour=%H").replace(tzinfo=UTC)
