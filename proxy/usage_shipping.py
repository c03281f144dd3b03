"""Usage records on their way: taken every interval, buffered within a bound, handed to a sink one after the other.

Nothing here is waited for by the data path. While the sink is down the buffer fills, and then the oldest documents
go, exactly counted.
"""

import asyncio
from collections import deque
from typing import Final, Protocol

import structlog

from proxy.clock import now_ms, wall_s
from proxy.tasks import spawn
from proxy.usage_records import Document, Recorder

log = structlog.get_logger("sluice.usage")

_FIRST_RETRY_S: Final = 0.5
_LAST_RETRY_S: Final = 15.0


class SinkError(Exception):
    """A document could not be kept; the text says why and what to do. The same document may be tried again."""


class Sink(Protocol):
    """Where documents are kept."""

    async def write(self, document: Document) -> None:
        """Return when the document is kept. Raises SinkError."""
        ...

    async def close(self) -> None:
        """Let go of everything; what was written stays."""
        ...


class Shipping:
    """How shipping stands, for the metrics."""

    __slots__ = ("buffered_bytes", "dropped_documents", "dropped_rows", "error", "shipped_documents", "shipped_rows")

    def __init__(self) -> None:
        self.shipped_documents = 0
        self.shipped_rows = 0
        self.dropped_documents = 0
        self.dropped_rows = 0
        self.buffered_bytes = 0
        self.error: str | None = None
        """Why the last attempt failed; None when it did not."""


class Buffer:
    """Documents that wait, oldest first: at most ``most_bytes`` of them, or else the oldest are dropped."""

    def __init__(self, most_bytes: int, shipping: Shipping) -> None:
        self._most_bytes = most_bytes
        self._documents: deque[Document] = deque()
        self._shipping = shipping
        self._filled = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._under_way = 0

    def put(self, document: Document) -> None:
        """Add the newest."""
        self._documents.append(document)
        self._shipping.buffered_bytes += len(document.value)
        while self._shipping.buffered_bytes > self._most_bytes and len(self._documents) > 1:
            oldest = self._pop()
            self._shipping.dropped_documents += 1
            self._shipping.dropped_rows += oldest.rows
        self._filled.set()
        self._empty.clear()

    async def get(self) -> Document:
        """Wait for the oldest and take it out; ``done`` says that it is kept elsewhere."""
        while not self._documents:
            self._filled.clear()
            await self._filled.wait()
        self._under_way = 1
        return self._pop()

    def done(self) -> None:
        """The document that was taken out is kept."""
        self._under_way = 0
        if not self._documents:
            self._empty.set()

    async def emptied(self) -> None:
        """Wait until everything is kept elsewhere."""
        await self._empty.wait()

    @property
    def unfinished(self) -> int:
        """Documents that are not kept elsewhere yet."""
        return len(self._documents) + self._under_way

    def _pop(self) -> Document:
        document = self._documents.popleft()
        self._shipping.buffered_bytes -= len(document.value)
        return document


class Shipper:
    """Takes a record every ``interval_s`` and ships what there is."""

    def __init__(
        self, recorder: Recorder, sink: Sink, shipping: Shipping, *, interval_s: float, buffer_bytes: int
    ) -> None:
        self._recorder = recorder
        self._sink = sink
        self._shipping = shipping
        self._interval_s = interval_s
        self._buffer = Buffer(buffer_bytes, shipping)
        self._taken_ms = now_ms()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin; ``stop`` ends it."""
        self._taken_ms = now_ms()
        self._tasks = [spawn(self._collect(), "take usage records"), spawn(self._pump(), "ship usage records")]

    async def stop(self, timeout_s: float) -> None:
        """Take the last record and ship what there is, for at most ``timeout_s``; the rest is lost, and is counted."""
        collecting, pumping = self._tasks
        collecting.cancel()
        await self._take()
        try:
            async with asyncio.timeout(timeout_s):
                await self._buffer.emptied()
        except TimeoutError:
            log.error("usage records lost at the stop", documents=self._buffer.unfinished)
        pumping.cancel()
        await self._sink.close()

    async def _collect(self) -> None:
        due_s = self._interval_s
        begin_ms = now_ms()
        while True:
            await asyncio.sleep(max(begin_ms / 1000 + due_s - now_ms() / 1000, 0))
            await self._take()
            due_s += self._interval_s
            late_s = (now_ms() - begin_ms) / 1000 - due_s
            if late_s > 0:  # after a stall one longer interval, not many empty ones
                due_s += late_s

    async def _take(self) -> None:
        taken_ms = now_ms()
        interval_ms = taken_ms - self._taken_ms
        self._taken_ms = taken_ms
        begin_ms = round(wall_s() * 1000) - interval_ms
        for document in self._recorder.take(taken_ms, begin_ms, interval_ms):
            if document is not None:
                self._buffer.put(document)
            await asyncio.sleep(0)

    async def _pump(self) -> None:
        while True:
            document = await self._buffer.get()
            await self._ship(document)
            self._buffer.done()
            self._shipping.shipped_documents += 1
            self._shipping.shipped_rows += document.rows

    async def _ship(self, document: Document) -> None:
        retry_s = _FIRST_RETRY_S
        while True:
            try:
                await self._sink.write(document)
            except SinkError as error:
                if self._shipping.error is None:
                    log.error("usage records cannot be shipped, they are buffered", error=str(error))
                self._shipping.error = str(error)
            else:
                if self._shipping.error is not None:
                    log.info("usage records are shipped again", dropped_documents=self._shipping.dropped_documents)
                self._shipping.error = None
                return
            await asyncio.sleep(retry_s)
            retry_s = min(retry_s * 2, _LAST_RETRY_S)
