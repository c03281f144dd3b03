"""Ships usage records: takes one every interval, buffers within a limit, and writes to a sink one after the other.

The data path never waits for any of this. While the sink is down the buffer fills; then the oldest documents are
dropped, and counted exactly.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Final, Protocol

import structlog

from proxy.runtime.clock import monotonic_s, now_ms, wall_s
from proxy.runtime.tasks import attempt, spawn
from proxy.usage.documents import Document, Documents
from proxy.usage.records import Columns

log = structlog.get_logger("sluice.usage")

_FIRST_RETRY_S: Final = 0.5
_LAST_RETRY_S: Final = 15.0
_LONGEST_INTERVAL_MS: Final = 86_400_000
"""The longest interval that readers accept: a process that was suspended longer reports only the last day."""

TakeUsage = Callable[[], AsyncIterator[tuple[Columns, int | None]]]
"""Yields the rows since the last call (``Metering.take_usage``), and of several workers the one that counted them."""


class SinkError(Exception):
    """A document could not be written; the text says why and what to do. A retry may succeed."""


class RefusedError(SinkError):
    """A document that no retry can write."""


class Sink(Protocol):
    """Storage for documents."""

    async def write(self, document: Document) -> None:
        """Return once the document is stored. Raises SinkError, RefusedError."""
        ...

    async def close(self) -> None:
        """Release all resources soon and without an error; written documents stay."""
        ...


@dataclass(slots=True)
class Shipping:
    """State of shipping, for metrics."""

    shipped_documents: int = 0
    shipped_rows: int = 0
    dropped_documents: int = 0
    dropped_rows: int = 0
    buffered_bytes: int = 0
    error: str | None = None
    """Why the last attempt failed; None if it succeeded."""

    def count(self, document: Document, *, is_shipped: bool) -> None:
        if is_shipped:
            self.shipped_documents += 1
            self.shipped_rows += document.rows
        else:
            self.dropped_documents += 1
            self.dropped_rows += document.rows

    def dropped(self) -> tuple[int, int]:
        return self.dropped_documents, self.dropped_rows


class Buffer(asyncio.Queue[Document]):
    """Documents to be shipped, oldest first; beyond ``most_bytes`` the oldest are dropped."""

    def __init__(self, most_bytes: int, shipping: Shipping) -> None:
        super().__init__()
        self._most_bytes = most_bytes
        self._shipping = shipping

    def add(self, document: Document) -> None:
        self.put_nowait(document)
        while self._shipping.buffered_bytes > self._most_bytes and self.qsize() > 1:
            self.drop_oldest()

    def drop_oldest(self) -> None:
        self._shipping.count(self.get_nowait(), is_shipped=False)
        self.task_done()

    def _put(self, item: Document) -> None:
        super()._put(item)
        self._shipping.buffered_bytes += len(item.value)

    def _get(self) -> Document:
        document = super()._get()
        self._shipping.buffered_bytes -= len(document.value)
        return document


class Shipper:
    """Takes the usage of every ``interval_s`` and ships it as ``documents``."""

    def __init__(
        self,
        take_usage: TakeUsage,
        documents: Documents,
        sink: Sink,
        shipping: Shipping,
        *,
        interval_s: float,
        buffer_bytes: int,
    ) -> None:
        self._take_usage = take_usage
        self._documents = documents
        self._sink = sink
        self.shipping = shipping
        self._interval_s = interval_s
        self._buffer = Buffer(buffer_bytes, shipping)
        self._taken_ms = now_ms()
        self._taking = asyncio.Lock()
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._taken_ms = now_ms()
        self._tasks = [spawn(self._collect(), "take usage records"), spawn(self._pump(), "ship usage records")]

    async def set_mode(self, mode: str) -> None:
        """Switch the recorded mode: the current interval ends here, with the old mode."""
        async with self._taking:
            await attempt("take usage records", self._take)
            self._documents.set_mode(mode)

    async def stop(self, timeout_s: float) -> None:
        """Take the last record and ship everything within ``timeout_s``; the rest is lost and counted."""
        if not self._tasks:
            return
        collecting, pumping = self._tasks
        self._stopping.set()
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.wait((collecting,))  # not cancelled: midway, taken counts are in no document yet
                await self._buffer.join()
        except TimeoutError:
            documents, rows = self.shipping.dropped()
            pumping.cancel()
            await asyncio.wait((pumping,))
            while not self._buffer.empty():
                self._buffer.drop_oldest()
            dropped_documents, dropped_rows = self.shipping.dropped()
            log.error(
                "usage records lost at shutdown", documents=dropped_documents - documents, rows=dropped_rows - rows
            )
        pumping.cancel()
        await self._sink.close()

    async def _collect(self) -> None:
        due_s = monotonic_s()
        while True:
            # A stall makes one longer interval, not many empty ones; after it the old schedule continues.
            due_s += self._interval_s * max(1, ceil((monotonic_s() - due_s) / self._interval_s))
            with suppress(TimeoutError):
                async with asyncio.timeout(due_s - monotonic_s()):
                    await self._stopping.wait()
            async with self._taking:
                await attempt("take usage records", self._take)
            if self._stopping.is_set():
                return

    async def _take(self) -> None:
        taken_ms = now_ms()
        interval_ms = min(max(taken_ms - self._taken_ms, 1), _LONGEST_INTERVAL_MS)
        self._taken_ms = taken_ms
        begin_ms = round(wall_s() * 1000) - interval_ms
        async for columns, worker in self._take_usage():
            self._buffer.add(self._documents.document(columns, begin_ms, interval_ms, worker))

    async def _pump(self) -> None:
        while True:
            document = await self._buffer.get()
            await attempt("ship usage records", partial(self._settle, document))
            self._buffer.task_done()

    async def _settle(self, document: Document) -> None:
        is_shipped = False
        try:
            is_shipped = await self._ship(document)
        finally:
            self.shipping.count(document, is_shipped=is_shipped)

    async def _ship(self, document: Document) -> bool:
        """Write a document, at however many attempts; return False if it is refused."""
        retry_s = _FIRST_RETRY_S
        while True:
            try:
                await self._sink.write(document)
            except RefusedError as error:
                log.error("usage record refused", error=str(error), seq=document.seq, rows=document.rows)
                return False
            except SinkError as error:
                self._failed(str(error))
            except Exception as error:  # noqa: BLE001  whatever error a client library raises, records wait
                self._failed(f"{type(error).__name__}: {error}")
            else:
                if self.shipping.error is not None:
                    log.info("shipping usage records again", dropped_documents=self.shipping.dropped_documents)
                self.shipping.error = None
                return True
            await asyncio.sleep(retry_s)
            retry_s = min(retry_s * 2, _LAST_RETRY_S)

    def _failed(self, why: str) -> None:
        if self.shipping.error is None:
            log.error("cannot ship usage records: buffering them", error=why)
        self.shipping.error = why
