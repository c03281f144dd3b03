"""What waits for its throttle to end: Kafka's DelayQueue of ThrottledChannels, without its thread and its clock."""

from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

T = TypeVar("T")

MANY: Final = 2**31
"""As many as there are."""


class Handle(Generic[T]):
    """One entry of a DelayQueue, to discard it by."""

    __slots__ = ("end_ms", "item", "waiting")

    def __init__(self, item: T, end_ms: int) -> None:
        self.item = item
        self.end_ms = end_ms
        self.waiting = True


class DelayQueue(Generic[T]):
    """A heap by end time; entries of the same end come out in the order in which they were added."""

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
        """Let ``item`` wait until ``end_ms``."""
        handle = Handle(item, end_ms)
        heappush(self._heap, (end_ms, self._added, handle))
        self._added += 1
        self._waiting += 1
        return handle

    def discard(self, handle: Handle[T]) -> None:
        """Take an entry out before its time; one that is out already is left alone."""
        if not handle.waiting:
            return
        handle.waiting = False
        self._waiting -= 1
        # Its place in the heap is given up lazily, but never is much more than half of the heap dead.
        if len(self._heap) > 2 * self._waiting + 8:
            self._heap = [entry for entry in self._heap if entry[2].waiting]
            heapify(self._heap)

    def due(self, now_ms: int | None, most: int = MANY) -> list[T]:
        """Take out and return whose end has come (end <= now), in order of its end, ``most`` of them at the most. With
        None everything, whenever its end is.
        """
        items: list[T] = []
        while self._heap and (now_ms is None or self._heap[0][0] <= now_ms) and len(items) < most:
            handle = heappop(self._heap)[2]
            if handle.waiting:
                handle.waiting = False
                self._waiting -= 1
                items.append(handle.item)
        return items

    def next_end(self) -> int | None:
        """Return the earliest end time, the moment for which a timer is to be set; None when nothing waits."""
        while self._heap and not self._heap[0][2].waiting:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None
