"""What a piece of the program does, counted and not timed: lines of Python that run, and bytes that it looks at."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, SupportsIndex

Piece = bytes | bytearray | memoryview


@contextmanager
def lines_run() -> Iterator[list[int]]:
    """Count the lines of Python that run inside, as the one element of a list."""
    lines = [0]

    def count(_frame: FrameType, event: str, _what: object) -> Callable[..., Any]:
        lines[0] += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        yield lines
    finally:
        sys.settrace(before)


class Watched(bytes):
    """Bytes that count how many of them are looked at, by slicing, searching and copying, in ``looked_at``."""

    looked_at = 0

    def __getitem__(self, key: SupportsIndex | slice) -> Any:
        found = super().__getitem__(key)
        Watched.looked_at += len(found) if isinstance(found, bytes) else 1
        return Watched(found) if isinstance(found, bytes) else found

    def __add__(self, other: Any) -> "Watched":
        Watched.looked_at += len(self) + len(other)
        return Watched(super().__add__(other))

    def __radd__(self, other: bytes) -> "Watched":
        Watched.looked_at += len(self) + len(other)
        return Watched(other + bytes(self))

    def find(self, sub: Any, start: Any = 0, end: Any = None) -> int:
        stop = len(self) if end is None else min(end, len(self))
        Watched.looked_at += max(stop - start, 0)
        return super().find(sub, start, stop)


def work(call: Callable[[], object]) -> int:
    """Return the lines that ``call`` runs and the bytes of ``Watched`` that it looks at, together."""
    before = Watched.looked_at
    with lines_run() as lines:
        call()
    return lines[0] + Watched.looked_at - before
