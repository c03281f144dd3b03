"""Stores the batches of a stream in the warehouse, exactly once.

A batch becomes visible as a whole (``analysis.spark.writer``), rows together with the keys of their documents, so a
kill at any moment loses and doubles nothing: the next attempt finds what is stored. Between batches others may write.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from analysis.ingest import decoding
from analysis.ingest.documents import MOST_AHEAD_MS, WRONG_CLOCK
from analysis.ingest.duplicates import HOUR_MS, Document, Key, KnownDocuments
from analysis.ingest.source import Origin, Source
from analysis.ingest.warehouse import DOCUMENTS, KEYS, REJECTED, USAGE, Warehouse, hour_place
from analysis.schema import DOCUMENT_FILE
from analysis.spark.folder import Folder
from analysis.spark.writer import ASIDE, Writer, require_version
from quotas.names import OTHER

_SHOWN_FAULTS: Final = 3


def _now_ms() -> int:
    return int(time.time() * 1000)  # noqa: TID251  compared with timestamps of other machines


class Tally(NamedTuple):
    """The counts of a batch, or of a run."""

    documents: int = 0
    """The number of stored documents."""
    rows: int = 0
    duplicates: int = 0
    late: int = 0
    """Stored documents of an hour before the newest one of earlier batches."""
    rejected: int = 0
    wrong_clock: int = 0
    """Rejected documents with an impossible time."""
    missing: int = 0
    """Missing numbers; below 0 if late documents filled more gaps."""
    dropped: int = 0
    """The growth of the proxies' own counts of dropped documents."""
    rows_of_others: int = 0
    """Rows of clients beyond ``usage.max_clients``."""

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


@dataclass(frozen=True, slots=True)
class _Read:
    """A decoded text: a document, or the fault for which it is rejected."""

    place: Origin
    line: dict[str, Any]
    """A line of ``decoding.FILES``."""

    @property
    def document(self) -> Document:
        key = Key(self.line["instance"], self.line["boot"], self.line["seq"])
        return Document(key, self.line["time_ms"] // HOUR_MS, self.line["dropped_documents"])


class Ingestion:
    """Stores the batches of a source in a warehouse.

    ``tell`` gets a line about each batch and about rejected texts; ``now_ms`` is the wall clock; ``before`` is called
    before each batch, and raises if it must not be stored; ``after`` is called when it has been.
    """

    def __init__(
        self,
        source: Source,
        warehouse: str,
        tell: Callable[[str], None],
        now_ms: Callable[[], int] = _now_ms,
        before: Callable[[], None] = lambda: None,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        self.source = source
        self._spark = source.stream.sparkSession
        self._root = warehouse
        self._tables = Warehouse(self._spark, warehouse)
        require_version(Folder(self._spark, warehouse))
        self.total = Tally()
        self._tell = tell
        self._now_ms = now_ms
        self._before = before
        self._after = after
        self._first_hour = 0
        self._number = 0
        """The number of the last writer (``Writer.number``)."""
        self._known = self._nothing_known()

    def publish(self, batch: DataFrame, number: int) -> None:
        """Store a batch: the function for ``foreachBatch``."""
        self._before()
        attempt = f"{batch.sparkSession.sparkContext.getLocalProperty('sql.streaming.queryId')}-{number}"
        until_ms = self._now_ms() + MOST_AHEAD_MS
        with Writer(self._spark, self._root, "ingest") as writer:
            decoder = decoding.Decoder(self.source.texts, writer.folder.location(ASIDE), until_ms)
            files = batch.mapInArrow(decoder, from_arrow_schema(decoding.FILES)).toArrow()
            if writer.number != self._number + 1:  # others may have stored documents meanwhile
                self._known = self._nothing_known()
            self._number = writer.number
            tally = self._store(writer, attempt, files, until_ms)
        self.total = Tally(*map(sum, zip(self.total, tally, strict=True)))
        self._tell(f"batch {number}: {tally}")
        self._after()

    def _nothing_known(self) -> KnownDocuments:
        return KnownDocuments(self._tables.keys, lambda boots: self._tables.boots(boots, self._first_hour))

    def _store(self, writer: Writer, attempt: str, files: pa.Table, until_ms: int) -> Tally:
        """Publish the documents of ``decoding.FILES`` that are new."""
        told = files.to_pylist()
        every = [_Read(_origin(line), line) for each in told for line in each["lines"]]
        every.sort(key=lambda each: each.place.order())
        read = [each for each in every if each.line["fault"] is None]
        documents = [each.document for each in read]
        self._first_hour = min((each.hour for each in documents), default=0)
        are_new = [*self._known.are_new(documents)]
        new = [each for each, is_new in zip(read, are_new, strict=True) if is_new]
        stored = [each.document for each in new]
        newest = self._tables.newest_hour(until_ms) if stored else None
        late = [newest is not None and each.hour < newest for each in stored]
        aside = decoding.Files(writer.folder.location(ASIDE))
        of_rows = _of_rows(aside, told, {each.place for each in new})
        self._tables.publish(writer, attempt, chain(of_rows, self._about(aside, new, late)))
        rejected = [each for each in every if each.line["fault"] is not None]
        for each in rejected[:_SHOWN_FAULTS]:
            self._tell(f"rejected: {each.place}: {each.line['fault']}")
        missing, dropped = self._known.add(stored)
        return Tally(
            documents=len(new),
            rows=sum(each.line["rows"] for each in new),
            duplicates=len(read) - len(new),
            late=sum(late),
            rejected=len(rejected),
            wrong_clock=sum(each.line["fault"].startswith(WRONG_CLOCK) for each in rejected),
            missing=missing,
            dropped=dropped,
            rows_of_others=sum(each.line["rows_of_others"] for each in new),
        )

    def _about(self, aside: decoding.Files, new: Sequence[_Read], late: Sequence[bool]) -> Iterator[tuple[str, str]]:
        """Write files for the table of documents; yield their names and places."""
        begun = self._known.begun([each.document for each in new])
        hours: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
        for each, is_late in zip(new, late, strict=True):
            line, document = each.line, each.document
            begin_ms = line["time_ms"]
            said = {
                "begin_ms": begin_ms,
                "end_ms": begin_ms + line["interval_ms"],
                "dropped": document.dropped,
                "late": is_late,
                "is_first": document.key in begun,
            }
            hours[document.hour].append(line | said)
        for hour, lines in hours.items():
            yield aside.write(pa.Table.from_pylist(lines, DOCUMENT_FILE)), hour_place(DOCUMENTS, hour)


def _origin(line: Mapping[str, Any]) -> Origin:
    return Origin(*(line[name] for name in Origin._fields))


def _of_rows(aside: decoding.Files, told: list[dict[str, Any]], new: set[Origin]) -> Iterator[tuple[str, str]]:
    """Yield the names and places of files with new documents; those with duplicates are written again without them."""
    hours = set()
    for name, _, hour, lines in (each.values() for each in told):
        if hour is None:
            yield name, REJECTED
            continue
        rows = [line["rows"] for line in lines]
        stays = [_origin(line) in new for line in lines]
        if any(count for count, is_new in zip(rows, stays, strict=True) if is_new):
            hours.add(hour)
            yield name if all(stays) else aside.without(name, rows, stays), hour_place(USAGE, hour)
    for each in told:
        if each["names"] is not None and each["hour"] in hours:
            yield each["names"], hour_place(KEYS, each["hour"])
