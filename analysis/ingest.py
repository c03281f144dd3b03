"""Usage records from a stream into the table, exactly once.

A batch of the stream is published as partitions (date, hour, batch) that replace what an earlier try of the same
batch left there, so a kill at any moment loses and doubles nothing: not what the stream's checkpoint has, nor what is
read by an engine that knows nothing of Spark. The batch is named by the checkpoint's id and its number: a checkpoint
that is made anew begins at 0 again, and must not replace what another one wrote.
"""

import re
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Final

from pyspark import StorageLevel
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis import warehouse as tables
from analysis.documents import faults, headers, is_time, read, row_count, rows_of
from analysis.errors import AnalysisError, RunError
from analysis.files import Folder
from analysis.known import Header, Hour, Key, Known, duplicates, suspects
from analysis.sources.place import PLACE, where

_BYTES_PER_TASK: Final = 32 * 2**20
"""Of documents: a quarter of a million rows, 3 MB of Parquet. A short batch makes one file an hour."""
_WRITING: Final = {
    # Hours that a task writes at once; beyond it Spark sorts the rows by hour first, at half the speed.
    "spark.sql.maxConcurrentOutputFileWriters": "16",
    # Not INT96, which is what Spark writes by itself: no reader can skip by it.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
_SHOWN_FAULTS: Final = 3
_POLL_S: Final = 1
_RAISED: Final = re.compile(r"[\w.$]*(Error|Exception): .")
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@dataclass(slots=True)
class Tally:
    """What a batch, or a run, came to."""

    documents: int = 0
    """Stored."""
    rows: int = 0
    duplicates: int = 0
    late: int = 0
    """Documents of an hour before the newest one that an earlier batch stored; they are stored in their own hour."""
    rejected: int = 0

    def add(self, other: "Tally") -> None:
        """Add another one's numbers."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    def __str__(self) -> str:
        others = (("duplicate", self.duplicates), ("late", self.late), ("rejected", self.rejected))
        said = "".join(f", {number:,} {what}" for what, number in others if number)
        return f"{self.documents:,} documents, {self.rows:,} rows{said}"


class Ingestion:
    """Publishes batches of documents (``sources.place``) into a warehouse; one at a time may write to a warehouse.

    ``tell`` gets a line about each batch and about what was rejected.
    """

    def __init__(self, spark: SparkSession, warehouse: str, tell: Callable[[str], None]) -> None:
        tables.create(spark, warehouse)
        self.total = Tally()
        self._warehouse = warehouse
        self._usage = Folder(spark, tables.path_of(warehouse, tables.USAGE))
        self._tell = tell
        self._known = Known(self._stored)
        self._spark = spark
        self._batch = ""
        self._newest: Hour | None = None
        for left in self._usage.names(".spark-staging-*"):  # of a writer that was killed while it wrote
            self._usage.remove(left)

    def publish(self, batch: DataFrame, number: int) -> None:
        """Store a batch: the function for ``foreachBatch``."""
        spark = batch.sparkSession
        for key, value in _WRITING.items():
            spark.conf.set(key, value)
        self._spark = spark
        self._batch = f"{spark.sparkContext.getLocalProperty('sql.streaming.queryId')}-{number}"
        documents = batch.withColumn("id", F.monotonically_increasing_id()).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            tally = self._publish(documents)
        finally:
            documents.unpersist()
        self.total.add(tally)
        self._tell(f"batch {number}: {tally}")

    def _publish(self, documents: DataFrame) -> Tally:
        found = headers(documents).collect()
        if not found:
            return Tally()
        readable = [
            Header(each.id, Key(each.instance, each.boot, each.seq), Hour.of(each.time_ms))
            for each in found
            if None not in (each.instance, each.boot, each.seq) and is_time(each.time_ms)
        ]
        newest = self._newest or self._newest_stored()
        twice = self._duplicates(documents, readable)
        kept = _without(documents, twice)
        tally = self._write(kept.coalesce(max(1, sum(each.bytes for each in found) // _BYTES_PER_TASK)))
        tally.duplicates = len(twice)
        gone = {header.id for header in twice} | (self._reject(kept) if tally.rejected else set())
        stored = [header for header in readable if header.id not in gone]
        tally.late = sum(header.hour < newest for header in stored)
        self._newest = max([newest, *(header.hour for header in stored)])
        self._known.add(stored)
        return tally

    def _duplicates(self, documents: DataFrame, readable: list[Header]) -> list[Header]:
        suspected = suspects(readable, self._known)
        if not suspected:
            return []
        looked_at = read(documents.join(_ids(self._spark, suspected), "id", "left_semi"))
        faulty = {each.id for each in looked_at.where("not readable").select("id").collect()}
        return duplicates(suspected, faulty, self._known)

    def _write(self, documents: DataFrame) -> Tally:
        """Publish the rows of what has no fault, and count."""
        counted = Observation()
        good = F.col("readable")
        rows = read(documents).observe(
            counted,
            F.count_if(good).alias("documents"),
            F.coalesce(F.sum(F.when(good, row_count())), F.lit(0)).alias("rows"),
            F.count_if(~good).alias("rejected"),
        )
        stored = rows_of(rows.where(good), two_digits=True).withColumn("batch", F.lit(self._batch))
        writer = stored.write.partitionBy(*tables.PARTITIONS)
        writer = writer.mode("overwrite").option("partitionOverwriteMode", "dynamic").option("compression", "zstd")
        writer.parquet(tables.path_of(self._warehouse, tables.USAGE))
        return Tally(**counted.get)

    def _reject(self, documents: DataFrame) -> set[int]:
        """Keep aside what has a fault, and say the first of it; return the ids."""
        place = f"{tables.path_of(self._warehouse, tables.REJECTED)}/batch={self._batch}"
        rejected = faults(documents).select("id", *PLACE, "fault", "value").persist()
        try:
            rejected.drop("id").coalesce(1).write.mode("overwrite").option("compression", "zstd").parquet(place)
            for each in rejected.limit(_SHOWN_FAULTS).collect():
                self._tell(f"rejected: {where(each)}: {each.fault}")
            return {each.id for each in rejected.select("id").collect()}
        finally:
            rejected.unpersist()

    def _newest_stored(self) -> Hour:
        """Ask the table for its newest hour, this very batch aside; where it has none, for one before all others."""
        newest = tables.newest_hour(self._spark, self._warehouse, self._batch)
        return Hour(f"{newest:%Y-%m-%d}", newest.hour) if newest else Hour("", 0)

    def _stored(self, hour: Hour) -> Iterable[Key]:
        """Ask the table for the keys of an hour; but what this very batch left there is to be replaced."""
        rows = tables.stored_hour(self._spark, self._warehouse, *hour)
        if rows is None:
            return ()
        keys = rows.where(F.col("batch") != self._batch).select(*Key._fields).distinct()
        return [Key(*key) for key in keys.collect()]


def _ids(spark: SparkSession, documents: Iterable[Header]) -> DataFrame:
    return F.broadcast(spark.createDataFrame([(header.id,) for header in documents], "id long"))


def _without(documents: DataFrame, gone: list[Header]) -> DataFrame:
    return documents.join(_ids(documents.sparkSession, gone), "id", "left_anti") if gone else documents


def run(stream: DataFrame, ingestion: Ingestion, checkpoint: str, every_s: int | None) -> None:
    """Let the ingestion take in a stream until SIGTERM or SIGINT; None: what there is now. Raises RunError.

    A batch that a signal interrupts is done again by the next run.
    """
    asked_to_end: list[int] = []
    before = {each: signal.signal(each, lambda number, _: asked_to_end.append(number)) for each in _SIGNALS}
    trigger = {"availableNow": True} if every_s is None else {"processingTime": f"{every_s} seconds"}
    writer = stream.writeStream.foreachBatch(ingestion.publish).option("checkpointLocation", checkpoint)
    try:
        query = writer.trigger(**trigger).start()
        while not query.awaitTermination(_POLL_S):
            if asked_to_end:
                query.stop()
    except StreamingQueryException as error:
        raise RunError(f"ingestion stopped: {_cause(error)}; a next run goes on where this one was") from error
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _cause(error: StreamingQueryException) -> str:
    """Return the line of a long story that says why: the last of ours, or of any exception."""
    lines = [line.strip().removeprefix("analysis.errors.") for line in str(error).splitlines()]
    raised = [line for line in lines if _RAISED.match(line)]
    ours = [line for line in raised if line.startswith(AnalysisError.__name__)]
    return (ours or raised or lines)[-1].removeprefix(f"{AnalysisError.__name__}: ")
