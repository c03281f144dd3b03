"""Lines that nobody takes hold up nobody, and events that come too often do not become a flood."""

import asyncio
import io
import json
import os
from collections.abc import Callable, Iterator
from threading import Event, Thread
from typing import TextIO

import pytest
import structlog
from structlog import DropEvent

from proxy.runtime import logs
from proxy.runtime.log_lines import BURST, EVERY_MS, MAX_KEYS, MAX_WAITING_CHARS, EventLimiter, LogWriter
from tests.proxy.playbook import FakeLoop

AT_MOST_S = 30.0
"""Nothing here waits for it: it ends a test that would hang."""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.runtime.log_lines._LAST_WORDS_S", AT_MOST_S)


class Pipe:
    """A pipe that is full, and what comes out of it once somebody reads."""

    def __init__(self) -> None:
        self.reading_end, writing_end = os.pipe()
        os.set_blocking(writing_end, False)
        self.filled = 0
        try:
            while True:
                self.filled += os.write(writing_end, b"x" * 4096)
        except BlockingIOError:
            os.set_blocking(writing_end, True)
        self.stream: TextIO = os.fdopen(writing_end, "w")

    def read(self, before_the_end: Callable[[], object] = lambda: None) -> list[str]:
        """Read, and return all lines that have come when the writing end is closed."""
        read: list[bytes] = []

        def drain() -> None:
            while data := os.read(self.reading_end, 2**16):
                read.append(data)

        reader = Thread(target=drain)
        reader.start()
        before_the_end()
        self.stream.close()
        reader.join(AT_MOST_S)
        os.close(self.reading_end)
        return b"".join(read)[self.filled :].decode().splitlines()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    yield Pipe()
    structlog.reset_defaults()


def in_time(work: Thread) -> bool:
    work.start()
    work.join(AT_MOST_S)
    return not work.is_alive()


def test_while_nobody_reads_the_pipe_writing_goes_on_and_what_is_dropped_is_counted_and_said(pipe: Pipe) -> None:
    said: list[int] = []
    line = "y" * 999
    number = 3 * MAX_WAITING_CHARS // 1000

    def say(dropped: int, error: str) -> None:
        assert not error
        said.append(dropped)
        writer.write(f"dropped {dropped}")

    def flood() -> None:
        for _ in range(number):
            writer.write(line)

    writer = LogWriter(pipe.stream, say)
    writer.start()
    assert in_time(Thread(target=flood, daemon=True))
    dropped = writer.unread
    assert dropped >= number - 2 - MAX_WAITING_CHARS // 1000 - 2**16 // 1000
    lines = pipe.read(before_the_end=writer.stop)
    assert said == [dropped]
    assert lines[-1] == f"dropped {dropped}"
    assert lines[:-1] == [line] * (number - dropped)


def test_a_stop_does_not_wait_for_a_reader_who_never_comes(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.runtime.log_lines._LAST_WORDS_S", 0.0)
    writer = LogWriter(pipe.stream, lambda *_: None)
    writer.start()
    writer.write("unheard")
    assert in_time(Thread(target=writer.stop, daemon=True))
    assert in_time(Thread(target=writer.write, args=("nor this",), daemon=True))
    pipe.read()


def test_the_loop_goes_on_while_nobody_reads_the_log(pipe: Pipe) -> None:
    logs.configure("info", "json", pipe.stream)
    turned = Event()

    async def loop() -> None:
        for number in range(50):
            structlog.get_logger("sluice.test").info(f"event {number}", client_id="x" * 100_000)
            await asyncio.sleep(0)
        turned.set()

    def run() -> None:
        with logs.writer_thread():
            asyncio.run(loop())

    running = Thread(target=run, daemon=True)
    running.start()
    assert turned.wait(AT_MOST_S)
    pipe.read(before_the_end=lambda: running.join(AT_MOST_S))
    assert not running.is_alive()


def test_lines_come_in_order_and_all_of_them_before_the_end() -> None:
    stream = io.StringIO()
    writer = LogWriter(stream, lambda *_: None)
    writer.write("before")
    writer.start()
    for number in range(1000):
        writer.write(str(number))
    writer.stop()
    writer.write("after")
    assert stream.getvalue().split() == ["before", *map(str, range(1000)), "after"]


def test_log_lines_refused_by_full_disk_are_counted() -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    writer = LogWriter(Full(), lambda *_: None)
    writer.write("a")
    writer.write("b")
    assert (writer.unread, writer.unwritten) == (0, 2)


def test_a_disk_that_is_full_is_told_once_it_is_not_and_not_again_and_again_before() -> None:
    class Filling(io.StringIO):
        full = True
        attempts = 0

        def write(self, text: str) -> int:
            self.attempts += 1
            if self.full:
                raise OSError(28, "No space left on device")
            return super().write(text)

    told: list[tuple[int, str]] = []
    stream = Filling()
    writer = LogWriter(stream, lambda number, error: told.append((number, error)))
    for _ in range(2):
        writer.start()
        writer.write("lost")
        writer.stop()
        assert told == []
    assert stream.attempts == 2
    stream.full = False
    writer.start()
    writer.write("written")
    writer.stop()
    assert told == [(2, "no space left on device")]
    assert stream.getvalue() == "written\n"


class _Named:
    def __init__(self, name: str) -> None:
        self.name = name


def admitted(
    limiter: EventLimiter, number: int, event: str = "first throttle", name: str = "sluice.throttle"
) -> list[int]:
    """Log so many times and return ``left_out`` of the lines that come through."""
    through = []
    for _ in range(number):
        try:
            through.append(limiter(_Named(name), "info", {"event": event}).get("left_out", 0))
        except DropEvent:
            continue
    return through


def test_repeated_event_passes_in_a_burst_then_at_intervals() -> None:
    loop = FakeLoop()
    limiter = EventLimiter(loop.clock)
    assert admitted(limiter, 1000) == [0] * BURST
    assert admitted(limiter, 5, event="another") == [0] * 5
    loop.advance(EVERY_MS)
    assert admitted(limiter, 10) == [1000 - BURST]
    loop.advance(2 * EVERY_MS)
    assert admitted(limiter, 10) == [9, 0]
    loop.advance(BURST * EVERY_MS)
    assert len(admitted(limiter, 1000)) == BURST
    assert limiter.left_out == 900 + 9 + 8 + 900


def test_suppressed_events_are_reported_when_no_event_follows() -> None:
    loop = FakeLoop()
    limiter = EventLimiter(loop.clock)
    admitted(limiter, BURST + 7)
    admitted(limiter, BURST)
    assert limiter.take_left_out() == []
    assert limiter.take_left_out(of_all=True) == [(("sluice.throttle", "first throttle"), BURST + 7)]
    admitted(limiter, BURST + 3)
    loop.advance(BURST * EVERY_MS)
    assert limiter.take_left_out() == [(("sluice.throttle", "first throttle"), 3)]
    assert limiter.take_left_out() == []


def test_distinct_log_events_are_limited_in_total() -> None:
    limiter = EventLimiter(FakeLoop().clock)
    of_libraries = [
        len(admitted(limiter, 1, event=f"Error handling {number}", name="aiohttp")) for number in range(200)
    ]
    assert sum(of_libraries) == BURST
    of_ours = [len(admitted(limiter, 1, event=f"event {number}")) for number in range(2 * MAX_KEYS)]
    assert sum(of_ours) == MAX_KEYS - 1 + BURST


def test_a_flood_of_one_event_with_long_names_is_a_few_lines_and_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 connections, each with a name of its own of 32 KiB, wrote 55 MB in less than a second."""
    monkeypatch.setattr("proxy.runtime.logs.now_ms", FakeLoop().clock)
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    try:
        for number in range(3000):
            name = f"{number}" + "x" * 32_767
            structlog.get_logger("sluice.throttle").info("first throttle", client_id=name, rule=f"client-id={name}")
        assert logs.dropped() == {"unread": 0, "unwritten": 0, "repeated": 3000 - BURST}
        logs.flush(of_all=True)
    finally:
        structlog.reset_defaults()
    *_, last = lines = stream.getvalue().splitlines()
    assert len(lines) == BURST + 1
    assert len(stream.getvalue()) < 400_000
    assert json.loads(last)["number"] == 3000 - BURST
