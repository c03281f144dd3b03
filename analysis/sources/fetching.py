"""Fetches of one partition, asked for one by one: aiokafka's own reading decompresses whatever comes, all of it."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka import errors as kafka
from aiokafka.protocol.fetch import FetchRequest

from analysis.errors import AwayError
from analysis.sources.batches import Batch, Stored, batches
from analysis.sources.unfolding import DamagedError

_FETCH_BYTES: Final = 8 * 2**20
_WAIT_MS: Final = 500
_PAUSE_S: Final = 0.2
_PATIENCE_S: Final = 60.0
"""After which a partition that should have more is given up, for Spark to try again."""
_DAMAGED_TRIES: Final = 3
_READ_COMMITTED: Final = 1
_DAMAGED: Final = (kafka.for_code(2),)
"""CORRUPT_MESSAGE: what brokers themselves say of their log."""
_MOVED: Final = (
    kafka.NotLeaderForPartitionError,
    kafka.UnknownTopicOrPartitionError,
    kafka.LeaderNotAvailableError,
    kafka.ReplicaNotAvailableError,
    *map(kafka.for_code, (74, 75, 76)),  # FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, UNSUPPORTED_COMPRESSION_TYPE
)


class Fetched:
    """Where reading a partition is, and which transactions are known to have been aborted."""

    def __init__(self, consumer: AIOKafkaConsumer, at: TopicPartition, position: int) -> None:
        self.position = position
        """The next offset that is wanted."""
        self._client: Any = consumer._client  # noqa: SLF001  the consumer's own reading is what is not wanted
        self._at = at
        self._aborted: list[tuple[int, int]] = []
        """Of transactions that were aborted: who wrote, and from which offset on."""
        self._aborting: set[int] = set()
        self._damaged = 0

    async def next(self) -> bytes:
        """Return the batches that come next, as they are stored; none: the broker cannot read them itself.

        Raises KafkaError, and AwayError for no answer.
        """
        await self._client.set_topics([self._at.topic])
        until_s = time.monotonic() + _PATIENCE_S  # noqa: TID251  of a program that waits, not of the proxy
        while time.monotonic() < until_s:  # noqa: TID251  as above
            try:
                if content := await self._fetch():
                    return content
            except _MOVED:
                await self._client.force_metadata_update()
                await asyncio.sleep(_PAUSE_S)
            except _DAMAGED:
                self._damaged += 1
                if self._damaged >= _DAMAGED_TRIES:
                    return b""
                await asyncio.sleep(_PAUSE_S)
            except kafka.KafkaError as error:
                if not error.retriable:
                    raise
                await asyncio.sleep(_PAUSE_S)
        raise AwayError(f"topic {self._at.topic}, partition {self._at.partition}: no answer for {_PATIENCE_S:.0f} s")

    def records(self, content: bytes, end: int) -> Iterator[Stored]:
        """Yield what is in fetched batches, up to an offset (not in it), and be behind it."""
        try:
            for batch in batches(content):
                if self.position >= end:
                    return
                if batch.last < self.position:
                    continue
                if not self._is_passed_over(batch):
                    for record in batch.records(self.position):
                        if record.offset >= end:
                            break
                        yield record
                self.position = max(self.position, batch.last + 1)
        except DamagedError as error:
            # Where the next one begins, nobody knows: so the whole piece is given up.
            size = len(content)
            said = f"the log is damaged: {error}; nothing from here to offset {end - 1} can be had"
            yield Stored(self.position, end - 1, None, size, fault=said)
            self.position = end

    def _is_passed_over(self, batch: Batch) -> bool:
        """Whether it is of a transaction that was aborted, or only says how one ended."""
        while self._aborted and self._aborted[0][1] <= batch.first:
            self._aborting.add(self._aborted.pop(0)[0])
        if batch.is_control:
            if batch.aborts:
                self._aborting.discard(batch.producer_id)
            return True
        return batch.is_transactional and batch.producer_id in self._aborting

    async def _fetch(self) -> bytes:
        leader = self._client.cluster.leader_for_partition(self._at)
        if leader is None or leader == -1:
            raise kafka.LeaderNotAvailableError(self._at)
        wanted = [(self._at.topic, [(self._at.partition, self.position, _FETCH_BYTES)])]
        request = FetchRequest(_WAIT_MS, 1, _FETCH_BYTES, _READ_COMMITTED, wanted)
        answer = await self._client.send(leader, request)
        [(_, [(_, code, _, *rest)])] = answer.topics
        if code:
            raise kafka.for_code(code)(self._at)
        # From version 11 on, a preferred replica stands between the transactions and the records.
        aborted = rest[2] if answer.API_VERSION >= 11 else rest[-2]
        self._aborted = sorted(aborted or [], key=lambda each: each[1])
        self._aborting.clear()
        return bytes(rest[-1] or b"")
