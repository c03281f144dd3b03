"""What the Python client programs share: events out, the stop signal in, a producer's pace, a consumer's tally."""

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from tests.harness.clients.tasks import Administer, Consume, Group, Produce, Security, index_of, parse
from tests.harness.tokens import unsecured_token

PROGRESS_S: Final = 0.25
_emitting = threading.Lock()


def run(
    produce: Callable[[Produce], None], consume: Callable[[Consume], None], administer: Callable[[Administer], None]
) -> None:
    """Do the task of the command line; an error is an event too, and exit status 1. Warnings go to stderr."""
    logging.basicConfig(level=logging.WARNING)
    try:
        match parse(sys.argv[1:]):
            case Produce() as task:
                produce(task)
            case Consume() as task:
                consume(task)
            case Administer() as task:
                administer(task)
    except Exception as error:
        emit("error", text=f"{type(error).__name__}: {error}")
        raise


def run_group(consume: Callable[[Group], None]) -> None:
    """The same, of a program of many consumers."""
    logging.basicConfig(level=logging.WARNING)
    task = parse(sys.argv[1:])
    if not isinstance(task, Group):
        raise TypeError(f"{type(task).__name__} is not for a group")
    consume(task)


def emit(event: str, **values: object) -> None:
    """One event; `at_s` is the machine's monotonic clock, which all programs share. From any thread."""
    with _emitting:
        print(json.dumps({"event": event, "at_s": time.monotonic(), **values}), flush=True)


def stop_requested() -> threading.Event:
    """Set when the standard input ends."""
    requested = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        requested.set()

    threading.Thread(target=wait, daemon=True).start()
    return requested


class Tally:
    """What has been acknowledged or received, reported as it grows."""

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0
        self.indexes: set[int] = set()
        self.corrupt = 0
        self.errors: list[str] = []
        self.throttle_ms: list[float] = []
        self._reported_s = 0.0
        self._reported_records = 0

    def add(self, index: int | None, size: int) -> None:
        self.records += 1
        self.bytes += size
        if index is None:
            self.corrupt += 1
        else:
            self.indexes.add(index)
        self.tick()

    def receive(self, value: bytes) -> None:
        self.add(index_of(value), len(value))

    def tick(self) -> None:
        """Report what is new, but not too often."""
        if self.records == self._reported_records or time.monotonic() - self._reported_s < PROGRESS_S:
            return
        self._reported_s, self._reported_records = time.monotonic(), self.records
        emit("progress", records=self.records, bytes=self.bytes)

    def done(self, **values: object) -> None:
        emit(
            "done",
            records=self.records,
            bytes=self.bytes,
            seen=ranges(self.indexes),
            corrupt=self.corrupt,
            errors=self.errors[:20],
            throttle_ms=max(self.throttle_ms, default=0.0),
            **values,
        )


class Ending:
    """When a consumer has had enough; asked between two polls."""

    def __init__(self, task: Consume) -> None:
        self._records = task.records
        self._deadline_s = time.monotonic() + task.duration_s
        self._stop = stop_requested()

    def has_come(self, tally: Tally) -> bool:
        tally.tick()
        enough = self._records > 0 and tally.records >= self._records
        return enough or self._stop.is_set() or time.monotonic() >= self._deadline_s


def due_indexes(task: Produce) -> Iterator[tuple[int, float]]:
    """Each index to send, and how long to wait before it (0 for a greedy producer), until records or time run out."""
    start_s = time.monotonic()
    stop = stop_requested()
    sent = 0
    while not stop.is_set() and (task.records == 0 or sent < task.records):
        elapsed_s = time.monotonic() - start_s
        if task.duration_s > 0 and elapsed_s >= task.duration_s:
            return
        due_s = sent * task.record_bytes / task.rate_bytes_per_s if task.rate_bytes_per_s else 0.0
        yield task.first_index + sent, max(0.0, due_s - elapsed_s)
        sent += 1


def bearer_token(security: Security) -> str:
    return security.token or unsecured_token(security.username)


def is_aborted(transaction: int) -> bool:
    return transaction % 3 == 2


def ranges(indexes: set[int]) -> list[list[int]]:
    """[[first, last], …] of the indexes, in order."""
    found: list[list[int]] = []
    for index in sorted(indexes):
        if found and found[-1][1] == index - 1:
            found[-1][1] = index
        else:
            found.append([index, index])
    return found
