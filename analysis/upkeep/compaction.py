"""Compaction: Spark merges the batches of days that are over into one each, under the lock.

For each day and table, the new batch is written aside and compared; then a journal lists what to remove and to add, and
is executed. The next program that takes the lock completes a run that was killed.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.errors import RunError
from analysis.gold import inventory
from analysis.schema import DOCUMENTS, ROWS
from analysis.spark.folder import Folder
from analysis.upkeep.lock import Lock
from quotas.texts import size

Batches = dict[str, list[str]]
"""Names of batches, by ``hour=HH``."""
_ASIDE: Final = ".compacting"
_JOURNAL: Final = f"{_ASIDE}.json"
_ROWS_PER_FILE: Final = 5_000_000
_TABLES: Final = {"usage": ROWS.names, "documents": DOCUMENTS.names[:-1]}
"""Tables and their columns, without ``batch``."""


@dataclass(slots=True)
class Compacted:
    """The result of a run: batches, and the bytes of their files, before and after."""

    days: int = 0
    batches: int = 0
    size_bytes: int = 0
    batches_made: int = 0
    bytes_made: int = 0

    def add(self, other: "Compacted") -> None:
        """Add another one's numbers."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


class Compaction:
    """Compacts a warehouse. ``tell`` gets a line about each day; ``now_s`` is the wall clock."""

    def __init__(
        self, spark: SparkSession, warehouse: str, tell: Callable[[str], None], now_s: Callable[[], float]
    ) -> None:
        self._spark = spark
        self._root = warehouse.rstrip("/")
        self._folder = Folder(spark, warehouse)
        self._tell = tell
        self._now_s = now_s

    def run(self, older_s: int) -> Compacted:
        """Compact the days that ended longer ago. Raises AnalysisError if another program has the lock."""
        found = Compacted()
        with Lock(Folder(self._spark, f"{self._root}/usage"), "compact", self._now_s) as lock:
            recover(self._folder)
            for date in self._over(older_s):
                self._day(date, found, lock)
        return found

    def _over(self, older_s: int) -> list[str]:
        """Return the dates that ended before, without the newest."""
        until = datetime.fromtimestamp(self._now_s() - older_s, UTC) - timedelta(days=1)
        return [date for date in self._folder.names("usage/date=*")[:-1] if date <= f"date={until:%Y-%m-%d}"]

    def _day(self, date: str, found: Compacted, lock: Lock) -> None:
        day = Compacted(days=1)
        for table in _TABLES:
            if due := self._due(table, date):
                day.batches += sum(map(len, due.values()))
                day.size_bytes += self._size_bytes(table, date, due)
                name = f"compacted-{uuid4().hex[:12]}"
                self._rewrite(table, date, due, name, lock)
                day.batches_made += len(due)
                day.bytes_made += self._size_bytes(table, date, {hour: [f"batch={name}"] for hour in due})
        if day.batches:
            found.add(day)
            self._tell(f"{date}: {day.batches:,} batches of {size(day.size_bytes)}, now {size(day.bytes_made)}")

    def _due(self, table: str, date: str) -> Batches:
        """Return the batches of hours with several, without the last batch of a stream, which may be written again."""
        last = self._last_of_streams(table)
        due: Batches = {}
        for entry in self._folder.entries(f"{table}/{date}/hour=*/batch=*"):
            _, _, hour, batch = entry.path.split("/")
            if batch not in last:
                due.setdefault(hour, []).append(batch)
        return {hour: batches for hour, batches in due.items() if len(batches) > 1}

    def _last_of_streams(self, table: str) -> set[str]:
        last: dict[str, int] = {}
        for entry in self._folder.entries(f"{table}/date=*/hour=*/batch=*"):
            stream, _, number = entry.path.rpartition("/")[2].rpartition("-")
            if number.isdecimal():
                last[stream] = max(last.get(stream, 0), int(number))
        return {f"{stream}-{number}" for stream, number in last.items() if not stream.startswith("batch=compacted")}

    def _size_bytes(self, table: str, date: str, batches: Batches) -> int:
        places = [f"{table}/{date}/{hour}/{batch}" for hour, of_hour in batches.items() for batch in of_hour]
        return sum(self._folder.size_bytes(place) for place in places)

    def _rewrite(self, table: str, date: str, due: Batches, name: str, lock: Lock) -> None:
        paths = [f"{self._root}/{table}/{date}/{hour}/{batch}" for hour, batches in due.items() for batch in batches]
        schema = ROWS if table == "usage" else DOCUMENTS
        old = self._spark.read.schema(schema).option("basePath", f"{self._root}/{table}").parquet(*paths)
        written = old.select(*_TABLES[table]).withColumns(
            {"hour": F.lpad(F.col("hour").cast("string"), 2, "0"), "batch": F.lit(name)}
        )
        aside = f"{self._root}/{_ASIDE}"
        written.repartition("hour").write.partitionBy("date", "hour", "batch").mode("overwrite").options(
            compression="zstd", maxRecordsPerFile=str(_ROWS_PER_FILE)
        ).parquet(aside)
        new = self._spark.read.schema(schema).parquet(aside)
        if _proof(old, _TABLES[table]) != _proof(new, _TABLES[table]):
            raise RunError(f"{table}/{date}: the compacted rows differ from the original ones; nothing was changed")
        lock.check()
        journal = {"table": table, "date": date, "old": due, "new": name}
        self._folder.write(_JOURNAL, json.dumps(journal))
        recover(self._folder)


def recover(folder: Folder) -> None:
    """Complete a run that was killed after it wrote its journal, or remove its files. Needs the lock."""
    if folder.exists(_JOURNAL):
        _follow(folder, json.loads(folder.read(_JOURNAL)))
        folder.remove(_JOURNAL)
    folder.remove(_ASIDE)


def _follow(folder: Folder, journal: dict[str, Any]) -> None:
    table, date, name = journal["table"], journal["date"], journal["new"]
    for hour, batches in journal["old"].items():
        for batch in batches:
            folder.remove(f"{table}/{date}/{hour}/{batch}")
        aside = f"{date}/{hour}/batch={name}"
        if folder.exists(f"{_ASIDE}/{aside}"):
            folder.move(f"{_ASIDE}/{aside}", f"{table}/{aside}")
    if table == "usage":
        inventory.rename(folder, date, journal["old"], name)


def _proof(table: DataFrame, columns: list[str]) -> list[Any]:
    """Return for each hour the number of rows, and a sum of their hashes."""
    hashed = F.bit_xor(F.xxhash64(*columns))
    return sorted(table.groupBy("hour").agg(F.count("*"), hashed).collect())
