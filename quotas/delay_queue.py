"""A queue of items that wait for their throttle to end: Kafka's DelayQueue of ThrottledChannels, without thread or
clock.
"""

from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

T = TypeVar("T")

MANY: Final = 2**31
"""No bound on the number of items."""


class Handle(Generic[T]):
    """A handle to one entry of a DelayQueue; ``item`` is let go when it is cancelled."""

    __deletable__ = ("item",)  # for mypyc
    __slots__ = ("_queue", "end_ms", "item", "waiting")

    def __init__(self, queue: "DelayQueue[T]", item: T, end_ms: int) -> None:
        self._queue = queue
        self.item = item
        self.end_ms = end_ms
        self.waiting = True

    def cancel(self) -> None:
        """Remove the entry before its end; does nothing if it is already out."""
        if self.waiting:
            self.waiting = False
            del self.item
            self._queue.count_cancelled()


class DelayQueue(Generic[T]):
    """A heap ordered by end time, then by insertion."""

    __slots__ = ("_added", "_heap", "_waiting")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Handle[T]]] = []  # (end_ms, number in order of adding, entry)
        self._added = 0
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def __bool__(self) -> bool:
        return self._waiting > 0

    def add(self, end_ms: int, item: T) -> Handle[T]:
        """Add ``item`` with its end time."""
        handle = Handle(self, item, end_ms)
        heappush(self._heap, (end_ms, self._added, handle))
        self._added += 1
        self._waiting += 1
        return handle

    def count_cancelled(self) -> None:
        """Count an entry that waits no longer (called by its handle)."""
        self._waiting -= 1
        # Removed from the heap lazily: at most about half of the heap is dead.
        if len(self._heap) > 2 * self._waiting + 8:
            self._heap = [entry for entry in self._heap if entry[2].waiting]
            heapify(self._heap)

    def due(self, now_ms: int, most: int = MANY) -> list[T]:
        """Remove and return items whose end has come (end <= now), in order of end, at most ``most``."""
        items: list[T] = []
        while self._heap and self._heap[0][0] <= now_ms and len(items) < most:
            handle = heappop(self._heap)[2]
            if handle.waiting:
                handle.waiting = False
                self._waiting -= 1
                items.append(handle.item)
        return items

    def hasten(self, now_ms: int) -> None:
        """Let the end of all items have come."""
        self._heap = [(min(end_ms, now_ms), number, handle) for end_ms, number, handle in self._heap]
        heapify(self._heap)

    def next_end(self) -> int | None:
        """Return the earliest end time, for the next timer; None when the queue is empty."""
        while self._heap and not self._heap[0][2].waiting:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None
