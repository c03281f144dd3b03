"""Writes log lines by a thread, so that an unread pipe blocks nothing but the log, and limits the rate of each event,
and of lines about the same.
"""

import os
import select
from collections import deque
from collections.abc import Callable, Hashable
from threading import Condition, RLock, Thread
from typing import Final, Generic, TextIO, TypeVar

from structlog import DropEvent
from structlog.typing import EventDict, WrappedLogger

from quotas.names import fold

MAX_WAITING_CHARS: Final = 2**20
"""Limit of buffered characters; further lines are dropped."""
_AT_ONCE_CHARS: Final = 2**16
_LAST_WORDS_S: Final = 1.0

BURST: Final = 100
EVERY_MS: Final = 600
"""Rate limit of one event: BURST lines at once, then one per interval, a hundred a minute."""
MINUTE_MS: Final = 60_000
MAX_KEYS: Final = 1000
"""Limit of distinct events, or of what else lines are about; all others share one rate."""
OTHERS: Final = "others"

Key = TypeVar("Key", bound=Hashable)


class LogWriter:
    """Writes lines to ``stream``: directly, or by its own thread between ``start`` and ``stop``.

    ``say_dropped(number, error)`` is called once writing works again, to log how many lines were dropped: because
    nobody read them, or because of a write error.
    """

    def __init__(self, stream: TextIO, say_dropped: Callable[[int, str], None]) -> None:
        self._stream = stream
        self._say_dropped = say_dropped
        self._changed = Condition()
        self._waiting: deque[str] = deque()
        self._waiting_chars = 0
        self._thread: Thread | None = None
        self._stopping = False
        self._unsaid = 0
        self._error = ""
        """The last write error that is not logged yet."""
        self.unread = 0
        """Lines dropped because the reader did not keep up."""
        self.unwritten = 0
        """Lines dropped because writing failed: the disk is full, or the reader has gone."""

    def write(self, line: str) -> None:
        """Write or enqueue a line. Never blocks while there is a thread."""
        line += "\n"
        if self._thread is None:
            self._put([line])
            return
        with self._changed:
            if self._waiting_chars + len(line) > MAX_WAITING_CHARS:
                self.unread += 1
                self._unsaid += 1
                return
            self._waiting.append(line)
            self._waiting_chars += len(line)
            self._changed.notify()

    def start(self) -> None:
        """Start the thread."""
        self._thread = Thread(target=self._run, name="write the log", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write the remaining lines, for at most a second."""
        if self._thread is None:
            return
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(_LAST_WORDS_S)
        if not self._thread.is_alive():
            self._thread = None
            self._stopping = False

    def _run(self) -> None:
        while lines := self._take():
            if not self._put(lines):
                continue  # logging it would fail too
            with self._changed:
                unsaid, self._unsaid = self._unsaid, 0
                error, self._error = self._error, ""
            if unsaid:
                self._say_dropped(unsaid, error)

    def _take(self) -> list[str]:
        """Wait for lines and return some; none once the writer is stopping and all are written."""
        taken: list[str] = []
        chars = 0
        with self._changed:
            while not self._waiting and not self._stopping:
                self._changed.wait()
            while self._waiting and chars < _AT_ONCE_CHARS:
                taken.append(self._waiting.popleft())
                chars += len(taken[-1])
            self._waiting_chars -= chars
        return taken

    def _put(self, lines: list[str]) -> bool:
        """Write lines; return False if that failed."""
        text = "".join(lines)
        try:
            try:
                descriptor = self._stream.fileno()
            except OSError:  # an in-memory stream
                self._stream.write(text)
                self._stream.flush()
                return True
            # Bypass the stream's own buffer: a thread that blocks there would abort the interpreter at exit.
            _write_all(descriptor, text.encode(self._stream.encoding or "utf-8", "backslashreplace"))
        except (OSError, ValueError) as error:
            # A full disk or a closed pipe must not stop the proxy, and cannot be logged yet.
            with self._changed:
                self.unwritten += len(lines)
                self._unsaid += len(lines)
                self._error = str(getattr(error, "strerror", None) or error).lower()
            return False
        return True


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:  # another process that shares it may have made it non-blocking
            select.select((), (descriptor,), ())


class _Tokens:
    """How many lines about the same are still admitted."""

    __slots__ = ("left_out", "since_ms", "tokens")

    def __init__(self, tokens: int, now_ms: int) -> None:
        self.tokens = tokens
        self.since_ms = now_ms
        self.left_out = 0


class LineLimit(Generic[Key]):
    """Admits ``burst`` lines about the same at once, then one every ``every_ms``; counts those that are left out."""

    def __init__(self, burst: int = 1, every_ms: int = MINUTE_MS) -> None:
        self._burst = burst
        self._every_ms = every_ms
        self.seen: dict[Key, _Tokens] = {}

    def admit(self, key: Key, others: Key, now_ms: int) -> int | None:
        """Return how many lines were left out before this one, or None if this one is left out. ``others`` is the key
        beyond MAX_KEYS.
        """
        key = fold(key, self.seen, MAX_KEYS, others)
        seen = self.seen.get(key)
        if seen is None:
            seen = self.seen[key] = _Tokens(self._burst, now_ms)
        due = (now_ms - seen.since_ms) // self._every_ms
        seen.tokens = min(seen.tokens + due, self._burst)
        seen.since_ms += due * self._every_ms
        if not seen.tokens:
            seen.left_out += 1
            return None
        seen.tokens -= 1
        left_out, seen.left_out = seen.left_out, 0
        return left_out

    def take_left_out(self, now_ms: int, *, of_all: bool = False) -> list[tuple[Key, int]]:
        """Return (key, number) for lines left out without a later line, and forget those keys.

        It covers keys without a line for so long that a whole burst is admitted again, or ``of_all``.
        """
        long_ms = self._burst * self._every_ms
        over = {key: seen for key, seen in self.seen.items() if of_all or now_ms - seen.since_ms >= long_ms}
        for key in over:
            del self.seen[key]
        return [(key, seen.left_out) for key, seen in over.items() if seen.left_out]


class EventLimiter:
    """A structlog processor that limits the rate of each event; the next admitted line has ``left_out``."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._limit: LineLimit[tuple[str, str]] = LineLimit(BURST, EVERY_MS)
        self._lock = RLock()  # an object's destructor may log meanwhile
        self.left_out = 0

    def __call__(self, logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        """Return the event, or raise DropEvent."""
        del method
        # A library is one event: the number of its texts is unlimited.
        key = (logger.name, event["event"] if logger.name.startswith("sluice") else "")
        with self._lock:
            left_out = self._limit.admit(key, ("", ""), self._clock())
            self.left_out += left_out is None
        if left_out is None:
            raise DropEvent
        return {**event, "left_out": left_out} if left_out else event

    def take_left_out(self, *, of_all: bool = False) -> list[tuple[tuple[str, str], int]]:
        """Return ((logger, event), number) as ``LineLimit`` does: here for events that did not occur for a minute."""
        with self._lock:
            return self._limit.take_left_out(self._clock(), of_all=of_all)


class OnceAMinute(LineLimit[Key]):
    """Admits one line per key and minute; ``say_more(key, number)`` logs the number of the rest.

    ``flush`` has to be called now and then: it logs those numbers.
    """

    def __init__(self, say_more: Callable[[Key, int], None]) -> None:
        super().__init__()
        self._say_more = say_more

    def admits(self, key: Key, others: Key, now_ms: int) -> bool:
        """Return whether a line may be logged for ``key``, or for ``others`` if there are too many keys."""
        key = fold(key, self.seen, MAX_KEYS, others)
        left_out = self.admit(key, others, now_ms)
        if left_out:
            self._say_more(key, left_out)
        return left_out is not None

    def flush(self, now_ms: int) -> None:
        """Log how many more there were, for minutes that are over."""
        for key, number in self.take_left_out(now_ms):
            self._say_more(key, number)
