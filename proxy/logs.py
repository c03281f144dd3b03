"""Logs on stderr: one event a line, whatever a client-id contains.

JSON for machines, and a form of its own for people: structlog's console and logfmt renderers let escape sequences and
bidirectional controls through, with which a client's name could rewrite the terminal it is shown on.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final, Literal, TextIO

import structlog
from structlog.typing import EventDict, WrappedLogger

from proxy.clock import wall_s

LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_CONTINUED: Final = "\n    | "  # what begins a line that is not an event of its own


def configure(
    level: Literal["debug", "info", "warning", "error"],
    format: Literal["auto", "json", "console"],  # noqa: A002  the setting's name
    stream: TextIO | None = None,
) -> None:
    """Send what structlog and the logging of libraries have to say to ``stream``, stderr unless given."""
    stream = stream or sys.stderr
    people = format == "console" or (format == "auto" and stream.isatty())
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            _stamped,
            render_console if people else render_json,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=lambda name="sluice": _Writer(name, stream),
        cache_logger_on_first_use=True,
    )
    # Libraries speak up from warning on: their info is about requests, and the proxy has metrics for those.
    logging.basicConfig(level=max(LEVELS[level], logging.WARNING), handlers=[_FromLibraries()], force=True)
    logging.captureWarnings(capture=True)


def render_json(logger: WrappedLogger, method: str, event: EventDict) -> str:
    """One JSON object; everything outside ASCII is escaped."""
    del logger, method
    try:
        return json.dumps(event, default=str, allow_nan=False)
    except (TypeError, ValueError):
        # A key that is no text, a number that is no JSON number: better shown as Python shows it than not at all.
        return json.dumps({key: value if isinstance(value, str) else repr(value) for key, value in event.items()})


def render_console(logger: WrappedLogger, method: str, event: EventDict) -> str:
    """``12:34:56.789 warning  sluice.cluster  no broker answers  cluster=demo``; texts as Python quotes them."""
    del logger, method
    head = (event.pop(key) for key in ("timestamp", "level", "logger", "event"))
    exception = event.pop("exception", None)
    timestamp, level, name, message = head
    fields = "".join(f" {_shown(key)}={_shown(value)}" for key, value in event.items())
    line = f"{timestamp} {level:7} {name}: {_printable(str(message))}{fields}"
    if exception:
        line += "".join(_CONTINUED + _printable(below) for below in str(exception).splitlines())
    return line


def _stamped(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Put what every event has in front: time (ISO 8601, UTC), level, logger, event."""
    del method
    stamp = datetime.fromtimestamp(wall_s(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    head = {"timestamp": stamp, "level": event.pop("level"), "logger": logger.name, "event": event.pop("event")}
    return {**head, **event}


def _shown(value: object) -> str:
    text = str(value)
    plain = text.isprintable() and text and not any(character in " =\"'\\" for character in text)
    return text if plain or (text.isprintable() and not isinstance(value, str)) else repr(text)


def _printable(text: str) -> str:
    """Return the text with what moves a cursor, ends a line or turns its direction written as an escape."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class _Writer:
    """Where rendered lines go; structlog calls the method of the level."""

    __slots__ = ("_stream", "name")

    def __init__(self, name: str, stream: TextIO) -> None:
        self.name = name
        self._stream = stream

    def _write(self, line: str) -> None:
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except OSError:
            pass  # a full disk or a reader that went away must not stop the proxy, and there is nowhere to say so

    debug = info = warning = error = critical = _write


class _FromLibraries(logging.Handler):
    """Passes on what libraries say through ``logging``."""

    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger(record.name)
        log.log(record.levelno, record.getMessage(), exc_info=record.exc_info)
