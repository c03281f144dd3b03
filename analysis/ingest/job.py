"""Usage records from a stream into the table, exactly once.

A batch of the stream is published as partitions (date, hour, batch) that replace what an earlier try of the same
batch left there, so a kill at any moment loses and doubles nothing: not what the stream's checkpoint has, nor what is
read by an engine that knows nothing of Spark. The batch is named by the checkpoint's id and its number: a checkpoint
that is made anew begins at 0 again, and must not replace what another one wrote.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from analysis.errors import AnalysisError, RunError, cause, is_away, next_run
from analysis.ingest import rejected
from analysis.ingest.ended import java_ended, shortly, unless_stopped
from analysis.ingest.faults import MOST_AHEAD_MS, WRONG_CLOCK
from analysis.ingest.known import Header, Hour, Key, KnownDocuments, duplicates
from analysis.ingest.numbers import Gaps
from analysis.ingest.outage import Outage, Signals
from analysis.ingest.publishing import Publication, remove_left
from analysis.ingest.staging import FILE_ROWS, FILES, INPUT, STAGED, merge, staging
from analysis.sources.place import where
from analysis.spark.folder import Folder
from analysis.table import warehouse as tables
from quotas.names import OTHER

_ROWS_AT_ONCE: Final = 4_000_000
"""Whose files the driver holds: some 60 MB."""
_SHOWN_FAULTS: Final = 3
_POLL_S: Final = 1
_STOP: Final = "5s"
"""How long Spark may take to end a query. What is under way then is done again by the next run."""


def _now_ms() -> int:
    return int(time.time() * 1000)  # noqa: TID251  of a program that reads what was stamped elsewhere


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
    wrong_clock: int = 0
    """Of the rejected."""
    missing: int = 0
    """By their numbers; below 0: came, after they had been told as missing."""
    dropped: int = 0
    """By how much the proxies' own counts of what they dropped have grown."""
    rows_of_others: int = 0
    """Of clients that records do not tell apart: beyond ``usage.max_clients``."""

    def add(self, other: "Tally", times: int = 1) -> None:
        """Add another one's numbers; -1: take them away."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + times * getattr(other, each.name))

    def __str__(self) -> str:
        clocks = f" ({self.wrong_clock:,} of a wrong clock)" if self.wrong_clock else ""
        others = (
            ("duplicate", self.duplicates),
            ("late", self.late),
            (f"rejected{clocks}", self.rejected),
            ("missing", max(self.missing, 0)),
            ("that were missing", max(-self.missing, 0)),
            ("dropped by proxies", self.dropped),
            (f"row{'s' * (self.rows_of_others != 1)} of {OTHER}", self.rows_of_others),
        )
        said = "".join(f", {number:,} {what}" for what, number in others if number)
        return f"{self.documents:,} documents, {self.rows:,} rows{said}"


class Ingestion:
    """Publishes batches of documents (``sources.place``) into a warehouse; one at a time may write to a warehouse.

    ``tell`` gets a line about each batch and about what was rejected; ``now_ms`` is the wall clock; ``alone`` says
    whether nobody else writes to the warehouse now.
    """

    def __init__(
        self,
        spark: SparkSession,
        warehouse: str,
        tell: Callable[[str], None],
        now_ms: Callable[[], int] = _now_ms,
        alone: Callable[[], AbstractContextManager[bool]] = lambda: nullcontext(True),
    ) -> None:
        tables.create(spark, warehouse)
        rejected.bring_up_to_date(spark, warehouse)
        self.total = Tally()
        self._warehouse = warehouse
        self._usage = Folder(spark, tables.path_of(warehouse, tables.USAGE))
        self.tell = tell
        self._now_ms = now_ms
        self.spark = spark
        self._batch = ""
        self._tally = Tally()
        """What the last batch that was begun has come to."""
        with alone() as nobody_else:
            if nobody_else:
                remove_left(self._usage)
        self.begin()

    def begin(self) -> None:
        """Know nothing but what is stored: as a new process would, after a batch that was not committed."""
        self._known = KnownDocuments(self._stored)
        self._gaps = Gaps(self._known.numbers)
        self._newest: Hour | None = None

    def publish(self, batch: DataFrame, number: int) -> None:
        """Store a batch: the function for ``foreachBatch``."""
        spark = batch.sparkSession
        self.spark = spark
        before, self._batch = self._batch, f"{spark.sparkContext.getLocalProperty('sql.streaming.queryId')}-{number}"
        if self._batch == before:  # it was published, and its end was not noted: brokers were away
            self.total.add(self._tally, -1)
        self._tally = Tally()
        self._tally = tally = self._publish(
            batch.withColumn("id", F.monotonically_increasing_id()).select(*INPUT.names)
        )
        self.total.add(tally)
        self.tell(f"batch {number}: {tally}")

    def _publish(self, documents: DataFrame) -> Tally:
        newest = self._newest or self._newest_stored()
        until_ms = self._now_ms() + MOST_AHEAD_MS
        with _staged(documents, until_ms) as staged:
            found = _Found.of(staged)
            twice = duplicates(found.rows, self._known)
            if not twice:
                self._store(staged, found)
        if twice:
            left = found.rows.keys() - set(twice)
            with _staged(documents, until_ms, {header.id for header in twice}) as staged:
                found = _Found.of(staged)
                if found.rows.keys() != left:
                    raise AnalysisError("a batch that was read twice did not have the same documents both times")
                self._store(staged, found)
        missing, dropped = self._gaps.count(found.dropped)
        self._known.add(found.rows)
        self._newest = max([newest, *(header.hour for header in found.rows)])
        late = sum(header.hour < newest for header in found.rows)
        return Tally(
            documents=len(found.rows),
            rows=sum(found.rows.values()),
            duplicates=len(twice),
            late=late,
            rejected=found.rejected,
            wrong_clock=found.wrong_clock,
            missing=missing,
            dropped=dropped,
            rows_of_others=found.rows_of_others,
        )

    def _store(self, staged: DataFrame, found: "_Found") -> None:
        """Publish the files, and keep aside what has a fault."""
        publication = Publication(self._usage, self._batch)
        rows = sum(found.rows.values())
        hours = len({header.hour for header in found.rows})
        slices = 1 + rows // _ROWS_AT_ONCE
        for number in range(slices):
            files = staged.where(F.col("content").isNotNull() & (F.spark_partition_id() % slices == number))
            if found.files > 2 * (hours + rows // FILE_ROWS):
                files = files.coalesce(1 + rows // slices // FILE_ROWS).mapInArrow(merge, staged.schema)
            for date, hour, content in zip(*files.select(*FILES.names).toArrow().columns, strict=True):
                publication.add(Hour(date.as_py(), hour.as_py()), content.as_py())
        publication.publish()
        if found.rejected:
            self._reject(staged.where("fault IS NOT NULL").select("id", *rejected.COLUMNS))

    def _reject(self, found: DataFrame) -> None:
        """Keep aside what has a fault, and say the first of it."""
        rejected.store(found, self._warehouse, self._batch)
        for each in found.drop("value").orderBy("id").limit(_SHOWN_FAULTS).collect():
            self.tell(f"rejected: {where(each)}: {each.fault}")

    def _newest_stored(self) -> Hour:
        """Ask the table for its newest hour, this very batch aside; where it has none, for one before all others."""
        until = datetime.fromtimestamp(
            (self._now_ms() + MOST_AHEAD_MS) / 1000, UTC
        )  # what is beyond is of a wrong clock
        newest = tables.newest_hour(self.spark, self._warehouse, besides=self._batch, until=until)
        return Hour(f"{newest:%Y-%m-%d}", newest.hour) if newest else Hour("", 0)

    def _stored(self, hour: Hour) -> Iterable[Key]:
        """Ask the table for the keys of an hour; but what this very batch left there is to be replaced."""
        return [Key(*key) for key in tables.stored_keys(self.spark, self._warehouse, *hour, self._batch)]


@dataclass(frozen=True, slots=True)
class _Found:
    """What is in a batch."""

    rows: dict[Header, int]
    """Of each document without a fault, in the order in which they came."""
    rejected: int
    wrong_clock: int
    files: int
    dropped: dict[Header, int]
    """What each of them says of how many its proxy had dropped."""
    rows_of_others: int

    @classmethod
    def of(cls, staged: DataFrame) -> "_Found":
        """Have a batch decoded, which is STAGED, and look at all of it but texts and files."""
        wrong_clock = F.col("fault").startswith(WRONG_CLOCK).alias("wrong_clock")
        header = (*Key._fields, "time_ms", "rows", "dropped_documents", "rows_of_others")
        columns = staged.select("id", *header, wrong_clock).toArrow().sort_by("id").to_pylist()
        documents = {_header(each): each for each in columns if each["rows"] is not None}
        files = sum(each["id"] is None for each in columns)
        return cls(
            rows={header: each["rows"] for header, each in documents.items()},
            rejected=len(columns) - len(documents) - files,
            wrong_clock=sum(bool(each["wrong_clock"]) for each in columns),
            files=files,
            dropped={header: each["dropped_documents"] for header, each in documents.items()},
            rows_of_others=sum(each["rows_of_others"] for each in documents.values()),
        )


def _header(staged: Mapping[str, Any]) -> Header:
    key = Key(staged["instance"], staged["boot"], staged["seq"])
    return Header(staged["id"], key, Hour.of(staged["time_ms"]))


@contextmanager
def _staged(documents: DataFrame, until_ms: int, dropped: Collection[int] = ()) -> Iterator[DataFrame]:
    """Have workers make STAGED of documents (INPUT), once: it stays on disk."""
    stage = staging(dropped, until_ms)
    staged = documents.mapInArrow(stage, from_arrow_schema(STAGED)).persist(StorageLevel.DISK_ONLY)
    try:
        yield staged
    finally:
        staged.unpersist()


def run(
    stream: DataFrame,
    ingestion: Ingestion,
    checkpoint: str,
    every_s: int | None,
    outage: Outage | None = None,
    signals: Signals | None = None,
) -> None:
    """Let the ingestion take in a stream until SIGTERM or SIGINT; None: what there is now. Raises RunError.

    A batch that a signal interrupts is done again by the next run. With an ``outage`` brokers that are away are waited
    for, and then the batch that they interrupted is done again.
    """
    signals = signals or Signals()
    ingestion.spark.conf.set("spark.sql.streaming.stopTimeout", _STOP)
    trigger = {"availableNow": True} if every_s is None else {"processingTime": f"{every_s} seconds"}
    publish = shortly(ingestion.publish, signals)
    writer = stream.writeStream.foreachBatch(publish).option("checkpointLocation", checkpoint)
    with signals.heard():
        while not signals.came:
            try:
                with unless_stopped(signals):
                    _take_in(writer.trigger(**trigger).start(), outage, signals)
            except StreamingQueryException as error:
                if outage is None or not is_away(error):
                    raise RunError(f"ingestion stopped: {cause(error)}; {next_run(error)}") from error
                outage.wait(cause(error))
                ingestion.begin()
            except (Py4JError, ConnectionError):
                raise java_ended(ingestion.spark, checkpoint) from None
            else:
                return


def _take_in(query: StreamingQuery, outage: Outage | None, signals: Signals) -> None:
    """Return when a query has ended, or a signal has come. Raises StreamingQueryException."""
    while not query.awaitTermination(_POLL_S):
        if signals.came:
            with suppress(PySparkException, Py4JError):  # it does not end by itself within _STOP: this process does
                query.stop()
            return
        if outage is not None and outage.lasts and query.lastProgress is not None:
            outage.over()
