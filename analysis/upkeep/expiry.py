"""Expiry: removes old hours of rows, documents and gold, and old rejected documents, as the one writer."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql import SparkSession

from analysis.gold import inventory
from analysis.gold.tables import TABLES
from analysis.spark.folder import Folder
from analysis.spark.writer import Writer
from analysis.warehouse import HOUR, Inventory
from quotas.texts import size

_TABLES: Final = ("usage", "keys", "documents", *(f"gold/{table}_hour" for table in TABLES))
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


def expire(
    spark: SparkSession,
    warehouse: str,
    keep_s: int,
    tell: Callable[[str], None],
    now_s: Callable[[], float],
    *,
    dry_run: bool = False,
) -> Expired:
    """Remove what is older than ``keep_s``. ``tell`` gets a line about each hour; ``now_s`` is the wall clock."""
    folder = Folder(spark, warehouse)
    if dry_run or not folder.exists("usage"):
        return _Expiry(folder, keep_s, now_s()).find(tell)
    with Writer(spark, warehouse, "expire", now_s) as writer:
        expiry = _Expiry(folder, keep_s, now_s())
        found = expiry.find(tell)
        writer.publish(writes=expiry.lists, removes=expiry.removes)
    return found


class _Expiry:
    """The changes of a run."""

    def __init__(self, folder: Folder, keep_s: int, now_s: float) -> None:
        self._folder = folder
        self._keep = timedelta(seconds=keep_s)
        self._now = datetime.fromtimestamp(now_s, UTC)
        self.lists: dict[str, str] = {}
        """The lists of gold, without old hours."""
        self.removes: list[str] = []

    def find(self, tell: Callable[[str], None]) -> Expired:
        stored = self._hours("usage")
        # Records from the future, by a wrong clock, must not make all others old.
        begun = [each for each in stored if _begin(each) <= self._now] or stored
        newest = max(begun, key=_begin, default=None)
        latest = self._now if newest is None else min(self._now, _begin(newest) + HOUR)
        found = Expired(latest - self._keep)

        def is_old(place: str) -> bool:
            return place != newest and _begin(place) + HOUR <= found.before

        for place in filter(is_old, stored):
            size_bytes = self._folder.size_bytes(f"usage/{place}")
            found.hours += 1
            found.size_bytes += size_bytes
            tell(f"{place}: {size(size_bytes)}")
        for date in sorted(
            {each.partition("/")[0] for table in _TABLES for each in filter(is_old, self._hours(table))}
        ):
            self._remove(date, is_old)
        rejected = self._rejected(found.before)
        found.rejected = len(rejected)
        for place in rejected:
            tell(place)
        self.removes += rejected
        return found

    def _remove(self, date: str, is_old: Callable[[str], bool]) -> None:
        """Remove old hours, the tables of their day, and folders of dates that have no hours any more."""
        known = inventory.read(self._folder, date).hours
        left = {hour: version for hour, version in known.items() if not is_old(f"{date}/hour={hour}")}
        self.lists[inventory.place(date)] = inventory.text(date, Inventory(left))
        self.removes += [f"gold/{each}_day/{date}" for each in TABLES]
        for table in _TABLES:
            hours = self._folder.names(f"{table}/{date}/hour=*")
            old = [f"{table}/{date}/{hour}" for hour in hours if is_old(f"{date}/{hour}")]
            self.removes += old if len(old) < len(hours) else [f"{table}/{date}"]
        if not left:
            self.removes.append(inventory.place(date))

    def _rejected(self, before: datetime) -> list[str]:
        """Return old batches by the time of their files: object stores have no time of a directory."""
        files = self._folder.entries("rejected/batch=*/*.parquet")
        new = {each.path.rpartition("/")[0] for each in files if each.modified_s >= before.timestamp()}
        return sorted({each.path.rpartition("/")[0] for each in files} - new)

    def _hours(self, table: str) -> list[str]:
        return [each.path.removeprefix(f"{table}/") for each in self._folder.entries(f"{table}/date=*/hour=*")]


def _begin(place: str) -> datetime:
    return datetime.strptime(place, "date=%Y-%m-%d/hour=%H").replace(tzinfo=UTC)
