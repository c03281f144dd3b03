"""Running a client program, and what it reported."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from tests.harness.clients.tasks import Task, arguments
from tests.harness.polling import wait_until

TIMEOUT_S: Final = 90.0
ERROR_LINES: Final = 20
Event = dict[str, Any]


class ClientError(Exception):
    """A client program that failed or took too long; carries what it wrote to stderr."""


@dataclass(frozen=True, slots=True)
class Result:
    """The `done` event of a producer or consumer. A producer counts what was acknowledged (with acks=0: sent)."""

    records: int
    bytes: int
    seen: tuple[tuple[int, int], ...]
    """Ranges of the payload indexes, first and last."""
    corrupt: int
    errors: tuple[str, ...]
    throttle_ms: float | None
    """The largest throttle time that the client itself reported; None where it reports none."""


class ClientProcess:
    """One client at work, as a context manager: ended by its id at the latest when the block ends."""

    def __init__(self, command: Sequence[str], task: Task) -> None:
        self.name = f"{task.client_id} ({type(task).__name__.lower()})"
        self.events: list[Event] = []
        self._folder = Path(tempfile.mkdtemp(prefix="sluice-client-"))
        self._stderr = self._folder / "stderr"
        with self._stderr.open("wb") as stderr:
            self._process = subprocess.Popen(
                [*command, *arguments(task)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def of_kind(self, event: str) -> list[Event]:
        return [each for each in list(self.events) if each["event"] == event]

    def wait_for(self, is_so: Callable[["ClientProcess"], bool], what: str, timeout_s: float = TIMEOUT_S) -> None:
        """Until the events say so; ClientError when the program ends first, or time is up."""

        def look() -> bool:
            is_over = self._process.poll() is not None and not self._reader.is_alive()
            if is_so(self):
                return True
            if is_over:
                raise self._error(f"ended before {what}")
            return False

        try:
            wait_until(look, what, timeout_s)
        except TimeoutError as error:
            raise self._error(str(error)) from None

    def ask_to_stop(self) -> None:
        """Close its standard input: it finishes what it has begun and reports."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def event(self, kind: str, timeout_s: float = TIMEOUT_S) -> Event:
        """The last event of that kind, once the program has ended well."""
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise self._error(f"did not end within {timeout_s:g} s") from None
        self._reader.join(TIMEOUT_S)
        found = self.of_kind(kind)
        if status != 0 or not found:
            raise self._error(f"ended with status {status} and {'no ' if not found else ''}{kind}")
        return found[-1]

    def result(self, timeout_s: float = TIMEOUT_S) -> Result:
        done = self.event("done", timeout_s)
        return Result(
            records=done["records"],
            bytes=done["bytes"],
            seen=tuple((first, last) for first, last in done["seen"]),
            corrupt=done["corrupt"],
            errors=tuple(done["errors"]),
            throttle_ms=done["throttle_ms"],
        )

    def failure(self, timeout_s: float = TIMEOUT_S) -> str:
        """What it failed with; ClientError when it ended well."""
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise self._error(f"did not fail within {timeout_s:g} s") from None
        self._reader.join(TIMEOUT_S)
        said = self.of_kind("error")
        if status == 0 or not said:
            raise self._error(f"ended with status {status} and no error")
        return str(said[-1]["text"])

    def stderr(self) -> str:
        return self._stderr.read_text(encoding="utf-8", errors="replace") if self._stderr.exists() else ""

    def close(self) -> None:
        if self._process.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
        self._reader.join(TIMEOUT_S)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self.events.append(json.loads(line))

    def _error(self, what: str) -> ClientError:
        last = json.dumps(self.events[-3:])
        lines = "\n".join(self.stderr().splitlines()[-ERROR_LINES:])
        return ClientError(f"client {self.name} {what}\nlast events: {last}\n{lines}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def python_command(module: str) -> list[str]:
    return [sys.executable, "-m", f"tests.harness.clients.{module}"]
