"""Logs on stderr: one event per line, whatever a client-id contains, with limited length and rate.

JSON for machines, and a renderer of its own for people: structlog's console and logfmt renderers pass escape sequences
and bidirectional controls, with which a client's name could rewrite the terminal.
"""

import json
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final, Literal, TextIO

import structlog
from structlog.typing import EventDict, WrappedLogger

from proxy.runtime.clock import now_ms, wall_s
from proxy.runtime.log_lines import EventLimiter, LogWriter
from proxy.runtime.names import label
from quotas.texts import shown

LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
MAX_VALUE_BYTES: Final = 1024
MAX_EXCEPTION_BYTES: Final = 16 * 1024
"""A longer value is cut, and ends in a digest by which it can be compared."""
_MOST_PROBLEMS: Final = 20
_CONTINUED: Final = "\n    | "  # prefix of continuation lines


class _Output:
    """The current output of the log, and its rate limiter."""

    def __init__(self, stream: TextIO, *, is_debug: bool) -> None:
        self.is_debug = is_debug
        self.worker: int | None = None
        self.writer = LogWriter(stream, _say_dropped)
        self.limiter = EventLimiter(now_ms)


_current: _Output | None = None


def configure(
    level: Literal["debug", "info", "warning", "error"],
    format: Literal["auto", "json", "console"],  # noqa: A002  the setting's name
    stream: TextIO | None = None,
) -> None:
    """Send the logs of structlog and of libraries to ``stream``, by default stderr."""
    global _current  # noqa: PLW0603  as structlog's own configuration, there is one for the process
    stream = stream or sys.stderr
    people = format == "console" or (format == "auto" and stream.isatty())
    _current = current = _Output(stream, is_debug=level == "debug")
    structlog.configure(
        processors=[
            current.limiter,
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            _bounded,
            _stamped,
            render_console if people else render_json,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=lambda name="sluice": _Logger(name, current.writer),
        cache_logger_on_first_use=True,
    )
    # Libraries log from warning on: their info is about single requests, for which the proxy has metrics.
    logging.basicConfig(level=max(LEVELS[level], logging.WARNING), handlers=[_FromLibraries()], force=True)
    logging.captureWarnings(capture=True)


def say_worker(number: int) -> None:
    """Say in each line from now on which of several workers has logged it."""
    if _current is not None:
        _current.worker = number


def is_debug() -> bool:
    """Whether the log has what takes long to find out."""
    return _current is not None and _current.is_debug


@contextmanager
def writer_thread() -> Iterator[None]:
    """Write lines by a thread within this context, so that no reader can block the event loop."""
    if (current := _current) is None:
        yield
        return
    current.writer.start()
    try:
        yield
    finally:
        flush(of_all=True)
        current.writer.stop()


def flush(*, of_all: bool = False) -> None:
    """Log how many lines were left out, for events that no longer occur. To be called now and then."""
    if _current is not None:
        for (name, event), number in _current.limiter.take_left_out(of_all=of_all):
            structlog.get_logger("sluice.log").warning("lines left out", of=name, said=event, number=number)


def log_problems(say: Callable[..., object], event: str, problems: Sequence[object]) -> None:
    """Log the first problems, each in a line, and the number of the rest."""
    for problem in problems[:_MOST_PROBLEMS]:
        say(event, problem=str(problem))
    if len(problems) > _MOST_PROBLEMS:
        say(event, further_problems=len(problems) - _MOST_PROBLEMS)


def dropped() -> dict[str, int]:
    """Return the number of dropped lines by cause: no reader, write error, or rate limit."""
    if _current is None:
        return {"unread": 0, "unwritten": 0, "repeated": 0}
    writer = _current.writer
    return {"unread": writer.unread, "unwritten": writer.unwritten, "repeated": _current.limiter.left_out}


def _say_dropped(number: int, error: str) -> None:
    log = structlog.get_logger("sluice.log")
    if error:
        log.warning("lines dropped: they could not be written", number=number, error=error)
    else:
        log.warning("lines dropped: the reader did not keep up", number=number)


def render_json(logger: WrappedLogger, method: str, event: EventDict) -> str:
    """Render one JSON object in ASCII."""
    del logger, method
    try:
        return json.dumps(event, default=str, allow_nan=False)
    except (TypeError, ValueError):
        # For keys that are not strings, and numbers that JSON lacks: Python's repr.
        return json.dumps({key: value if isinstance(value, str) else repr(value) for key, value in event.items()})


def render_console(logger: WrappedLogger, method: str, event: EventDict) -> str:
    """Render ``12:34:56.789 warning  sluice.cluster  no broker answers  cluster=demo``, with texts
    quoted as in Python.
    """
    del logger, method
    head = (event.pop(key) for key in ("timestamp", "level", "logger", "event"))
    exception = event.pop("exception", None)
    timestamp, level, name, message = head
    fields = "".join(f" {_shown(key)}={_shown(value)}" for key, value in event.items())
    line = f"{timestamp} {level:7} {name}: {shown(str(message))}{fields}"
    if exception:
        line += "".join(_CONTINUED + shown(below) for below in str(exception).splitlines())
    return line


def _bounded(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Shorten long values. Other objects are measured by their text, and kept if that is short."""
    del logger, method
    for key, value in event.items():
        if value is None or isinstance(value, int | float):
            continue
        text = value if isinstance(value, str) else str(value)
        most = MAX_EXCEPTION_BYTES if key == "exception" else MAX_VALUE_BYTES
        if len(text) > most // 4:
            cut = label(text, most)
            if len(cut) < len(text):
                event[key] = cut
    return event


def _stamped(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Put the common fields first: time (ISO 8601, UTC), level, logger, event."""
    del method
    stamp = datetime.fromtimestamp(wall_s(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    head = {"timestamp": stamp, "level": event.pop("level"), "logger": logger.name, "event": event.pop("event")}
    if _current is not None and _current.worker is not None:
        event["worker"] = _current.worker
    return {**head, **event}


def _shown(value: object) -> str:
    text = str(value)
    plain = text.isprintable() and text and not any(character in " =\"'\\" for character in text)
    return text if plain or (text.isprintable() and not isinstance(value, str)) else repr(text)


class _Logger:
    """Passes rendered lines to the writer; structlog calls the method of the level."""

    __slots__ = ("critical", "debug", "error", "info", "name", "warning")

    def __init__(self, name: str, writer: LogWriter) -> None:
        self.name = name
        self.debug = self.info = self.warning = self.error = self.critical = writer.write


class _FromLibraries(logging.Handler):
    """Forwards log records of libraries to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger(record.name)
        log.log(record.levelno, record.getMessage(), exc_info=record.exc_info)
