"""A topic, read without a jar: a Python Data Source over aiokafka, for where Spark's Kafka connector is not.

What is asked of the brokers is asked by a client that lives for the question: offsets are wanted once a batch. Spark
imports this module in its Python workers. Offsets are {partition: offset}, with partitions as JSON has keys: strings.
"""

import asyncio
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, cast

import pyarrow as pa
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, KafkaTimeoutError
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from analysis.errors import DELETED, AnalysisError, AwayError
from analysis.sources.batches import Stored
from analysis.sources.connection import Connection
from analysis.sources.fetching import Fetched
from analysis.sources.place import SOURCE
from analysis.table.schema import MOST_DOCUMENT_BYTES

NAME: Final = "sluice_kafka"
_COLUMNS: Final = ("value", "size", "stamped_ms", "fault", "topic", "partition", "offset")
_ARROW: Final = pa.schema([SOURCE.field(name) for name in _COLUMNS])
_DOCUMENTS_PER_TASK: Final = 250
"""A quarter of a million rows: below it, another task costs more than it brings."""
_DOCUMENTS_PER_ARROW_BATCH: Final = 100
"""About 9 MB."""
_BYTES_PER_ARROW_BATCH: Final = 2 * MOST_DOCUMENT_BYTES
_REQUEST_MS: Final = 20_000
_BOOTSTRAP: Final = "Unable to bootstrap"
"""What aiokafka says of addresses at which nobody answers, and the addresses in a form of its own."""

Offsets = dict[str, int]


@dataclass(frozen=True, slots=True)
class Topic:
    """What is read, and how much of it at a time. ``accept_loss``: go on where retention has deleted what was next."""

    name: str
    connection: Connection
    documents: int
    accept_loss: bool

    def options(self) -> dict[str, str]:
        """Return it as options of a data source; Spark shows none that is called a secret."""
        connection = {"bootstrap": self.connection.bootstrap, "properties": dict(self.connection.properties)}
        rest = {"topic": self.name, "documents": str(self.documents), "accept_loss": str(self.accept_loss).lower()}
        return {"secret": json.dumps(connection), **rest}

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "Topic":
        """Return what the options say."""
        connection = Connection(**json.loads(options["secret"]))
        return cls(options["topic"], connection, int(options["documents"]), options["accept_loss"] == "true")

    async def consumer(self) -> AIOKafkaConsumer:
        """Return a consumer of committed records that has no group and no partition yet, started. Raises KafkaError."""
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it logs what is raised as well
        consumer = AIOKafkaConsumer(
            **self.connection.for_aiokafka(),
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="none",
            request_timeout_ms=_REQUEST_MS,
        )
        try:
            await consumer.start()
        except BaseException:
            await consumer.stop()
            raise
        return consumer


@dataclass
class Piece(InputPartition):
    """Offsets [begin, end) of a partition: the work of one task."""

    partition: int
    begin: int
    end: int


class KafkaSource(DataSource):
    """``spark.readStream.format("sluice_kafka")``, with ``Topic.options``."""

    @classmethod
    def name(cls) -> str:
        """Return what ``format`` takes."""
        return NAME

    def schema(self) -> StructType:
        """Return those columns of ``place.SOURCE`` that a topic has."""
        return from_arrow_schema(_ARROW)

    def streamReader(self, schema: StructType) -> "KafkaReader":  # noqa: ARG002, N802  Spark's face
        """Return the reader."""
        return KafkaReader(Topic.of(self.options))


class KafkaReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches in Spark's driver and reads pieces of them in its workers."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._target: Offsets | None = None
        """Where a run ends that takes what there is."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  Spark's face
        """Return the first offsets there are: a warehouse begins with all that the topic has."""
        return asyncio.run(self._bounds())[0]

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's face
        """Return how many documents a batch takes."""
        return ReadMaxRows(self._topic.documents)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's face
        """Note where the topic ends now."""
        self._target = asyncio.run(self._bounds())[1]

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802  Spark's face
        """Return where the batch ends that begins at ``start``. Raises AnalysisError for what has been deleted."""
        first, last = asyncio.run(self._bounds())
        begin = going_on(self._topic, start, first, last)
        return batch_end(begin, self._target or last, limit.max_rows if isinstance(limit, ReadMaxRows) else None)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return the pieces of a batch. Raises AnalysisError for what has been deleted, since it was planned too."""
        first, last = asyncio.run(self._bounds())
        begin = going_on(self._topic, start, first, last)
        going_on(self._topic, end, first, last)
        return pieces(begin, {each: min(offset, last[each]) for each, offset in end.items() if each in last})

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the documents of a piece, in a worker."""
        piece = cast("Piece", partition)
        at = TopicPartition(self._topic.name, piece.partition)
        with _said(f"topic {at.topic}, partition {at.partition}"), asyncio.Runner() as runner:
            consumer = runner.run(self._topic.consumer())
            try:
                fetched = Fetched(consumer, at, piece.begin)
                while fetched.position < piece.end:
                    content = runner.run(fetched.next())
                    yield from _arrow(at, fetched.records(content, piece.end))
            finally:
                runner.run(consumer.stop())

    async def _bounds(self) -> tuple[Offsets, Offsets]:
        """Return the first offset of each partition, and the one after the last committed record."""
        name = self._topic.name
        with _said(f"topic {name}"):
            consumer = await self._topic.consumer()
            try:
                partitions = await partitions_of(consumer, name)
                if not partitions:
                    raise AnalysisError(f"topic {name} is not there any more")
                first = await consumer.beginning_offsets(partitions)
                last = await consumer.end_offsets(partitions)
            finally:
                await consumer.stop()
        return {str(at.partition): first[at] for at in partitions}, {str(at.partition): last[at] for at in partitions}


async def partitions_of(consumer: AIOKafkaConsumer, topic: str) -> list[TopicPartition]:
    """Return a topic's partitions; none if it is not there, or not to be seen."""
    # Of all topics: to ask for one by its name would make it, where brokers make topics by themselves.
    cluster = await consumer._client.fetch_all_metadata()  # noqa: SLF001  `topics` throws the partitions away
    return [TopicPartition(topic, each) for each in sorted(cluster.partitions_for_topic(topic) or ())]


def going_on(topic: Topic, start: Offsets, first: Offsets, last: Offsets) -> Offsets:
    """Return where to go on reading, of partitions that have [first, last): a new one from where it begins.

    Raises AnalysisError where what comes next has been deleted, unless a loss is accepted.
    """
    found = {}
    for partition, lowest in first.items():
        found[partition] = offset = start.get(partition, lowest)
        if lowest <= offset <= last[partition]:
            continue
        # Deleted by retention; or with the topic, and this is a new one by the same name.
        if not topic.accept_loss:
            raise AnalysisError(
                f"topic {topic.name}, partition {partition} has offsets {lowest} to {last[partition]}, and {offset} is "
                f"next: {DELETED}"
            )
        found[partition] = lowest
    return found


def batch_end(begin: Offsets, last: Offsets, limit: int | None) -> Offsets:
    """Return where a batch ends: at ``last``, or ``limit`` documents further, each partition in its proportion."""
    left = {partition: max(last.get(partition, offset) - offset, 0) for partition, offset in begin.items()}
    total = sum(left.values())
    if limit is None or total <= limit:
        return {partition: begin[partition] + left[partition] for partition in begin}
    # Rounded up, so that every partition that has something gets on.
    return {partition: begin[partition] + -(-left[partition] * limit // total) for partition in begin}


def pieces(begin: Offsets, end: Offsets) -> list[InputPartition]:
    """Cut what lies between into tasks: a topic keyed by proxy may have all in one partition."""
    return [
        Piece(int(partition), at, min(at + _DOCUMENTS_PER_TASK, end[partition]))
        for partition in end
        for at in range(begin[partition], end[partition], _DOCUMENTS_PER_TASK)
    ]


@contextmanager
def _said(what: str) -> Iterator[None]:
    """Turn what brokers answer into a line of ours."""
    try:
        yield
    except KafkaError as error:
        away = error.retriable or isinstance(error, KafkaTimeoutError) or type(error) is KafkaError
        said = "no broker answers" if _BOOTSTRAP in str(error) else str(error)
        raise (AwayError if away else AnalysisError)(f"{what}: {said}") from error
    except OSError as error:
        raise AwayError(f"{what}: {error.strerror or error}") from error
    except NotImplementedError as error:  # aiokafka's word for what no version of the brokers' and its own has
        raise AnalysisError(f"{what}: the brokers are too old for aiokafka ({error}): use --source jvm") from error


def _arrow(at: TopicPartition, records: Iterable[Stored]) -> Iterator[pa.RecordBatch]:
    waiting: list[Stored] = []
    held = 0
    for record in records:
        waiting.append(record)
        held += len(record.value or b"")
        if len(waiting) >= _DOCUMENTS_PER_ARROW_BATCH or held >= _BYTES_PER_ARROW_BATCH:
            yield _batch(at, waiting)
            waiting, held = [], 0
    if waiting:
        yield _batch(at, waiting)


def _batch(at: TopicPartition, records: Sequence[Stored]) -> pa.RecordBatch:
    columns = {name: [getattr(record, name) for record in records] for name in _COLUMNS[:4]}
    place = {
        "topic": [at.topic] * len(records),
        "partition": [at.partition] * len(records),
        "offset": [record.offset for record in records],
    }
    return pa.RecordBatch.from_pydict({**columns, **place}, schema=_ARROW)
