"""What waits for its throttle to end: Kafka's DelayQueue of ThrottledChannels, without its thread and its clock."""

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

T = TypeVar("T")


class Handle(Generic[T]):
    """One entry of a DelayQueue, to discard it by."""

    __slots__ = ("end_ms", "item", "number", "waiting")

    def __init__(self, end_ms: int, number: int, item: T) -> None:
        self.end_ms = end_ms
        self.number = number
        self.item = item
        self.waiting = True

    def __lt__(self, other: "Handle[T]") -> bool:
        return (self.end_ms, self.number) < (other.end_ms, other.number)


class DelayQueue(Generic[T]):
    """A heap by end time; entries of the same end come out in the order in which they were added."""

    __slots__ = ("_added", "_heap", "_waiting")

    def __init__(self) -> None:
        self._heap: list[Handle[T]] = []
        self._added = 0
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def add(self, end_ms: int, item: T) -> Handle[T]:
        """Let ``item`` wait until ``end_ms``."""
        handle = Handle(end_ms, self._added, item)
        self._added += 1
        self._waiting += 1
        heappush(self._heap, handle)
        return handle

    def discard(self, handle: Handle[T]) -> None:
        """Take an entry out before its time; one that is out already is left alone."""
        if not handle.waiting:
            return
        handle.waiting = False
        self._waiting -= 1
        # Its place in the heap is given up lazily, but never more than half of the heap is dead.
        if len(self._heap) > 2 * self._waiting + 8:
            self._heap = [entry for entry in self._heap if entry.waiting]
            heapify(self._heap)

    def due(self, now_ms: int) -> list[T]:
        """Take out and return everything whose end has come (end <= now), in order of its end."""
        items: list[T] = []
        end_ms = self.next_end()
        while end_ms is not None and end_ms <= now_ms:
            handle = heappop(self._heap)
            handle.waiting = False
            self._waiting -= 1
            items.append(handle.item)
            end_ms = self.next_end()
        return items

    def next_end(self) -> int | None:
        """Return the earliest end time, the moment for which a timer is to be set; None when nothing waits."""
        while self._heap and not self._heap[0].waiting:
            heappop(self._heap)
        return self._heap[0].end_ms if self._heap else None
