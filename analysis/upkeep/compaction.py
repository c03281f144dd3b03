"""Compaction: Spark merges the batches of days that are over into one for each hour, as the one writer.

New batches are written aside and compared; those of a day become visible together, and then the old ones are removed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.errors import RunError
from analysis.gold import inventory
from analysis.schema import TABLES
from analysis.spark.folder import Folder
from analysis.spark.writer import ASIDE, Writer
from quotas.texts import size

Batches = dict[str, list[str]]
"""Names of batches, by ``hour=HH``."""
_ROWS_PER_FILE: Final = 5_000_000


class Compacted(NamedTuple):
    """The result of a run: batches, and the bytes of their files, before and after."""

    days: int = 0
    batches: int = 0
    size_bytes: int = 0
    batches_made: int = 0
    bytes_made: int = 0


def compact(
    spark: SparkSession, warehouse: str, older_s: int, tell: Callable[[str], None], now_s: Callable[[], float]
) -> Compacted:
    """Compact the days that ended longer ago. ``tell`` gets a line about each; ``now_s`` is the wall clock."""
    found = Compacted()
    until = f"date={datetime.fromtimestamp(now_s() - older_s, UTC) - timedelta(days=1):%Y-%m-%d}"
    if dates := [date for date in Folder(spark, warehouse).names("usage/date=*")[:-1] if date <= until]:
        with Writer(spark, warehouse, "compact", now_s) as writer:
            for date in dates:
                day = _Day(spark, warehouse.rstrip("/"), date, writer).compact()
                if day.days:
                    found = _sum(found, day)
                    tell(f"{date}: {day.batches:,} batches of {size(day.size_bytes)}, now {size(day.bytes_made)}")
    return found


@dataclass(frozen=True, slots=True)
class _Day:
    """A date of a warehouse."""

    spark: SparkSession
    root: str
    date: str
    writer: Writer

    def compact(self) -> Compacted:
        folder = self.writer.folder
        name = f"compacted-{uuid4().hex[:12]}"
        found = Compacted()
        moves: dict[str, str] = {}
        removes: list[str] = []
        for table in TABLES:
            if due := self._due(table):
                old = [f"{table}/{self.date}/{hour}/{batch}" for hour, batches in due.items() for batch in batches]
                new = [f"{table}/{self.date}/{hour}/batch={name}" for hour in due]
                self._rewrite(table, old, name)
                size_bytes = sum(map(folder.size_bytes, old))
                made_bytes = sum(folder.size_bytes(f"{ASIDE}/{place}") for place in new)
                found = _sum(found, Compacted(0, len(old), size_bytes, len(new), made_bytes))
                moves |= {f"{ASIDE}/{place}": place for place in new}
                removes += old
        if moves:
            found = found._replace(days=1)
            known = inventory.compacted(inventory.read(folder, self.date), self._due("usage"), name)
            self.writer.publish(moves, {inventory.place(self.date): inventory.text(self.date, known)}, removes)
        return found

    def _due(self, table: str) -> Batches:
        """Return the batches of hours with several."""
        due: Batches = {}
        for entry in self.writer.folder.entries(f"{table}/{self.date}/hour=*/batch=*"):
            _, _, hour, batch = entry.path.split("/")
            due.setdefault(hour, []).append(batch)
        return {hour: batches for hour, batches in due.items() if len(batches) > 1}

    def _rewrite(self, table: str, places: list[str], name: str) -> None:
        schema = TABLES[table]
        read = self.spark.read.schema(schema).option("basePath", f"{self.root}/{table}")
        old = read.parquet(*(f"{self.root}/{place}" for place in places)).select(schema.names)
        if table == "keys":
            old = old.distinct()
        written = old.withColumns({"hour": F.lpad(F.col("hour").cast("string"), 2, "0"), "batch": F.lit(name)})
        aside = f"{self.root}/{ASIDE}/{table}"
        written.repartition("hour").write.partitionBy("date", "hour", "batch").mode("overwrite").options(
            compression="zstd", maxRecordsPerFile=str(_ROWS_PER_FILE)
        ).parquet(aside)
        new = self.spark.read.schema(schema).parquet(aside)
        if _proof(old, schema.names) != _proof(new, schema.names):
            raise RunError(
                f"{table}/{self.date}: the compacted rows differ from the original ones; nothing was changed"
            )


def _sum(one: Compacted, other: Compacted) -> Compacted:
    return Compacted(*map(sum, zip(one, other, strict=True)))


def _proof(table: DataFrame, columns: list[str]) -> list[Any]:
    """Return for each hour the number of rows, and a sum of their hashes."""
    hashed = F.bit_xor(F.xxhash64(*columns))
    return sorted(table.groupBy("hour").agg(F.count("*"), hashed).collect())
