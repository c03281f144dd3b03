import io
import json
import logging
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import structlog

from proxy.runtime import logs

HOSTILE = 'esc\x1b[2J new\nline\r bidi\u202e sep\u2028 nel\x85 nul\0 lone\ud800 quote" back\\ end'

Form = Literal["json", "console"]


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def configured(form: Form, level: Literal["debug", "info"] = "info") -> tuple[io.StringIO, Any]:
    stream = io.StringIO()
    logs.configure(level, form, stream)
    return stream, structlog.get_logger("sluice.test")


def test_an_event_is_one_json_object() -> None:
    stream, log = configured("json")
    log.warning("broker moved", broker=3, address="10.0.0.1:9092")
    event = json.loads(stream.getvalue())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", event.pop("timestamp"))
    assert event == {
        "level": "warning", "logger": "sluice.test", "event": "broker moved", "broker": 3, "address": "10.0.0.1:9092"
    }  # fmt: skip


def test_an_event_reads_well_on_a_console() -> None:
    stream, log = configured("console")
    log.info("throttled", client_id="app 1", limit=1048576, rule=None, empty="")
    _, rest = stream.getvalue().split(" ", 1)
    assert rest == "info    sluice.test: throttled client_id='app 1' limit=1048576 rule=None empty=''\n"


@pytest.mark.parametrize("form", ["json", "console"])
@pytest.mark.parametrize("place", ["event", "field", "key", "within", "repr"])
def test_whatever_a_client_sends_one_event_is_one_line(form: Form, place: str) -> None:
    class Odd:
        def __repr__(self) -> str:
            return HOSTILE

    stream, log = configured(form)
    fields: dict[str, dict[str, object]] = {
        "field": {"x": HOSTILE},
        "key": {HOSTILE: 1},
        "within": {"x": [{"y": HOSTILE}]},
        "repr": {"x": Odd()},
    }
    log.info(HOSTILE if place == "event" else "event", **fields.get(place, {}))
    line = stream.getvalue()
    assert line.endswith("\n")
    assert line[:-1].isprintable()
    assert "esc" in line
    assert "end" in line
    line.encode("utf-8")
    if form == "json":
        json.loads(line)


def test_values_without_json_form_are_logged_as_python_text() -> None:
    stream, log = configured("json")
    log.info("odd", ratio=float("inf"), table={(1, 2): 3}, path=Path("/x"))
    event = json.loads(stream.getvalue())
    assert (event["event"], event["ratio"], event["table"]) == ("odd", "inf", "{(1, 2): 3}")
    assert "/x" in event["path"]


@pytest.mark.parametrize("form", ["json", "console"])
def test_no_value_is_long_and_two_that_begin_alike_stay_two(form: Form) -> None:
    shown = []
    for end in "ab":
        long = "🎈" * 100_000 + end
        stream, log = configured(form)
        log.error(long, text=long, nested=[{"x": long}], path=Path(long))
        log.error("event", exc_info=ValueError(long))
        shown.append(re.findall(r"~[0-9a-f]{12}", stream.getvalue()))
        assert len(stream.getvalue()) < 100_000
    assert [len(digests) for digests in shown] == [5, 5]
    assert not set(shown[0]) & set(shown[1])


@pytest.mark.parametrize("form", ["json", "console"])
def test_an_exception_cannot_pass_for_an_event(form: Form) -> None:
    stream, log = configured(form)
    log.error("failed", exc_info=ValueError(HOSTILE))
    first, *below = stream.getvalue().splitlines()
    assert " failed" in first if form == "console" else json.loads(first)["exception"]
    assert all(line.startswith("    | ") and line.isprintable() for line in below)
    assert bool(below) == (form == "console")


def test_levels_below_the_one_set_are_not_written() -> None:
    stream, log = configured("json", "info")
    log.debug("nothing")
    assert stream.getvalue() == ""
    stream, log = configured("json", "debug")
    log.debug("something")
    assert "something" in stream.getvalue()


def test_suppressed_log_event_does_not_format_its_values() -> None:
    class Costly:
        def __str__(self) -> str:
            raise AssertionError("was looked at")

        __repr__ = __str__

    _, log = configured("json", "info")
    log.debug("nothing", value=Costly())
    assert log.bind().debug.__name__ == "_nop"


def test_library_logs_and_warnings_become_json_events() -> None:
    stream, _ = configured("json")
    logging.getLogger("aiohttp.server").error("Error handling %s", HOSTILE)
    logging.getLogger("aiohttp.server").info("nothing")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", stacklevel=1)
    error, warning = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (error["logger"], error["level"]) == ("aiohttp.server", "error")
    assert error["event"] == "Error handling " + HOSTILE
    assert warning["logger"] == "py.warnings"


@pytest.mark.parametrize(("terminal", "begins"), [(True, "20"), (False, "{")])
def test_auto_log_format_is_text_on_terminal_else_json(
    terminal: bool, begins: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: terminal)
    logs.configure("info", "auto", stream)
    structlog.get_logger().info("hello")
    assert stream.getvalue().startswith(begins)


def test_a_full_disk_does_not_stop_the_proxy() -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    logs.configure("info", "json", Full())
    structlog.get_logger().error("unheard")
