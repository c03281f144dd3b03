"""Usage records from a stream into the warehouse, exactly once, by Spark's Structured Streaming.

A batch is written as partitions (date, hour, batch) that replace those of an earlier attempt, so a kill at any moment
loses and doubles nothing. It is named by the checkpoint's id and its number: a checkpoint that is made anew begins at 0
again, and must not replace what another one wrote.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program
from pyspark.sql.pandas.types import from_arrow_schema

from analysis.ingest import decoding
from analysis.ingest.faults import MOST_AHEAD_MS, WRONG_CLOCK
from analysis.ingest.known import HOUR_MS, Document, Key, KnownDocuments
from analysis.ingest.source import PLACE, where
from analysis.ingest.warehouse import DOCUMENTS, REJECTED, Warehouse
from analysis.schema import DOCUMENTS as COLUMNS_OF_DOCUMENTS
from quotas.names import OTHER

_SHOWN_FAULTS: Final = 3


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

    def add(self, other: "Tally") -> None:
        """Add another one's numbers."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

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
    """Stores batches of texts (``source.SOURCE``) in a warehouse.

    ``tell`` gets a line about each batch and about what was rejected; ``now_ms`` is the wall clock; ``before`` is
    called before each batch, and raises where it must not be stored; ``after`` when it has been.
    """

    def __init__(
        self,
        spark: SparkSession,
        warehouse: str,
        tell: Callable[[str], None],
        now_ms: Callable[[], int] = _now_ms,
        before: Callable[[], None] = lambda: None,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        self._tables = Warehouse(spark, warehouse)
        self._tables.create()
        self.total = Tally()
        self._tell = tell
        self._now_ms = now_ms
        self._before = before
        self._after = after
        self._batch = ""
        self._first_hour = 0
        self._known = KnownDocuments(
            lambda hour: self._tables.keys(hour, self._batch),
            lambda boots: self._tables.boots(boots, self._first_hour, self._batch),
        )

    def publish(self, batch: DataFrame, number: int) -> None:
        """Store a batch: the function for ``foreachBatch``."""
        self._before()
        spark = batch.sparkSession
        self._batch = f"{spark.sparkContext.getLocalProperty('sql.streaming.queryId')}-{number}"
        until_ms = self._now_ms() + MOST_AHEAD_MS
        found = batch.mapInArrow(decoding.headers(until_ms), from_arrow_schema(decoding.HEADERS)).toArrow()
        lines = sorted(
            found.to_pylist(), key=lambda line: tuple((line[name] is not None, line[name]) for name in PLACE)
        )
        read = [line for line in lines if line["fault"] is None]
        faults = [line for line in lines if line["fault"] is not None]
        documents = [_document(line) for line in read]
        self._first_hour = min((each.hour for each in documents), default=0)
        are_new = [*self._known.are_new(documents)]
        new = [line for line, is_new in zip(read, are_new, strict=True) if is_new]
        stored = [each for each, is_new in zip(documents, are_new, strict=True) if is_new]
        duplicates = frozenset(_place(line) for line, is_new in zip(read, are_new, strict=True) if not is_new)
        newest = self._tables.newest_hour(until_ms, self._batch) if stored else None
        late = [newest is not None and each.hour < newest for each in stored]
        if stored:
            self._store(batch, new, duplicates, until_ms)
            self._store_documents(spark, new, stored, late)
        if faults:
            self._reject(batch, faults, until_ms)
        missing, dropped = self._known.add(stored)
        tally = Tally(
            documents=len(new),
            rows=sum(line["rows"] for line in new),
            duplicates=len(duplicates),
            late=sum(late),
            rejected=len(faults),
            wrong_clock=sum(line["fault"].startswith(WRONG_CLOCK) for line in faults),
            missing=missing,
            dropped=dropped,
            rows_of_others=sum(line["rows_of_others"] for line in new),
        )
        self.total.add(tally)
        self._tell(f"batch {number}: {tally}")
        self._after()

    def _store(self, batch: DataFrame, new: list[dict[str, Any]], duplicates: frozenset[Any], until_ms: int) -> None:
        columns = {name for line in new for name in line["columns"]}
        files = batch.mapInArrow(decoding.files(duplicates, columns, until_ms), from_arrow_schema(decoding.FILES))
        hours, contents = files.toArrow().columns
        self._tables.publish(self._batch, zip(hours.to_pylist(), contents, strict=True))

    def _store_documents(
        self, spark: SparkSession, new: list[dict[str, Any]], stored: list[Document], late: list[bool]
    ) -> None:
        begun = self._known.begun(stored)
        lines = [
            (
                *(line[name] for name in ("cluster", "instance", "boot", "seq", "time_ms")),
                line["time_ms"] + line["interval_ms"],
                *(line[name] for name in ("dropped_documents", "rows", "rows_of_others", "rows_of_nobody")),
                *(is_late, each.key in begun),
                *(_moment(line).date(), _moment(line).hour, self._batch),
            )
            for line, each, is_late in zip(new, stored, late, strict=True)
        ]
        table = spark.createDataFrame(lines, COLUMNS_OF_DOCUMENTS).withColumn(
            "hour", F.lpad(F.col("hour").cast("string"), 2, "0")
        )
        self._tables.write(table.coalesce(1), DOCUMENTS, "date", "hour", "batch")

    def _reject(self, batch: DataFrame, faults: list[dict[str, Any]], until_ms: int) -> None:
        """Keep aside what has a fault, and say the first of it."""
        rejected = batch.mapInArrow(decoding.rejected(until_ms), from_arrow_schema(decoding.REJECTED))
        self._tables.write(rejected.coalesce(1).withColumn("batch", F.lit(self._batch)), REJECTED, "batch")
        for line in faults[:_SHOWN_FAULTS]:
            self._tell(f"rejected: {where(line)}: {line['fault']}")


def _document(line: dict[str, Any]) -> Document:
    key = Key(line["instance"], line["boot"], line["seq"])
    return Document(key, line["time_ms"] // HOUR_MS, line["dropped_documents"])


def _place(line: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(line[name] for name in PLACE)


def _moment(line: dict[str, Any]) -> datetime:
    return datetime.fromtimestamp(line["time_ms"] // 1000, UTC)
