"""The tables that ingestion writes: ``usage``, ``keys`` and ``documents``, by (date, hour, batch), and ``rejected``.

Plain Parquet, for any engine. A batch is a partition because a directory becomes visible in one step.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.errors import RunError
from analysis.ingest.duplicates import HOUR_MS, Boot, BootName, Key
from analysis.schema import DOCUMENTS as COLUMNS_OF_DOCUMENTS
from analysis.spark.folder import Folder
from analysis.spark.writer import ASIDE, Writer

USAGE, KEYS, DOCUMENTS, REJECTED = "usage", "keys", "documents", "rejected"
_BOOTS_WITHIN: Final = timedelta(days=7)
"""Boots that were silent for longer are taken for new ones."""


class Warehouse:
    """The tables of a warehouse."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark = spark
        self._root = root.rstrip("/")
        self._folder = Folder(spark, root)

    def publish(self, writer: Writer, attempt: str, files: Iterable[tuple[str, str]]) -> None:
        """Publish the files of a batch, names in ASIDE and places, all or none.

        A second attempt finds its documents stored. Rejected ones have no keys: theirs replace those of the first.
        Raises RunError, with nothing published, if a file is not there: a worker on another machine has written it.
        """
        batch = uuid4().hex[:16]
        moves = {
            f"{ASIDE}/{name}": f"{place}/batch={attempt if place == REJECTED else batch}/{name}"
            for name, place in files
        }
        if missing := [source for source in moves if not self._folder.exists(source)]:
            raise RunError(
                f"{self._root}: {len(missing)} of {len(moves)} files that workers wrote are not there, {missing[0]}: "
                "the warehouse must be one directory for all machines, or in an object store"
            )
        self._folder.remove(f"{REJECTED}/batch={attempt}")
        writer.publish(moves)

    def keys(self, hour: int) -> list[Key]:
        """Return the stored documents of an hour (since 1970)."""
        stored = self._documents(hour_place(DOCUMENTS, hour))
        if stored is None:
            return []
        found = stored.select("instance", "boot", "seq").toArrow()
        return [Key(*each) for each in zip(*(column.to_pylist() for column in found.columns), strict=True)]

    def boots(self, boots: Collection[BootName], since_hour: int) -> Mapping[BootName, Boot]:
        """Return the stored documents of boots, from a week before an hour on."""
        since = datetime.fromtimestamp(since_hour * HOUR_MS // 1000, UTC) - _BOOTS_WITHIN
        stored = self._documents(DOCUMENTS)
        if stored is None:
            return {}
        asked = self._spark.createDataFrame([*boots], "instance string, boot string")
        found = (
            stored.where(F.col("date") >= F.lit(since.date()))
            .join(F.broadcast(asked), ["instance", "boot"])
            .groupBy("instance", "boot")
            .agg(F.expr("IF(bool_or(is_first), 0, min(seq))"), F.max("seq"), F.count_distinct("seq"), F.max("dropped"))
        )
        return {(instance, boot): Boot(*rest) for instance, boot, *rest in found.collect()}

    def newest_hour(self, until_ms: int) -> int | None:
        """Return the newest stored hour (since 1970) before a moment."""
        for date in reversed(self._folder.names(f"{DOCUMENTS}/date=*")):
            for name in reversed(self._folder.names(f"{DOCUMENTS}/{date}/hour=*")):
                at = datetime.strptime(f"{date}/{name}+0000", "date=%Y-%m-%d/hour=%H%z")
                hour = round(at.timestamp() * 1000) // HOUR_MS
                if hour * HOUR_MS < until_ms:
                    return hour
        return None

    def _documents(self, place: str) -> DataFrame | None:
        if not self._folder.exists(place):
            return None
        read = self._spark.read.schema(COLUMNS_OF_DOCUMENTS).option("basePath", f"{self._root}/{DOCUMENTS}")
        return read.parquet(f"{self._root}/{place}")


def hour_place(table: str, hour: int) -> str:
    """Return the partition of an hour since 1970."""
    return f"{table}/{datetime.fromtimestamp(hour * HOUR_MS // 1000, UTC):date=%Y-%m-%d/hour=%H}"
