"""A program of the harness: a process group of its own, its output in a file, ended by its id.

A group of its own keeps a Ctrl-C at the terminal away from servers that must outlive the clean-up of what uses them.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.harness.polling import wait_until

STOP_TIMEOUT_S: Final = 15.0
TAIL_LINES: Final = 25


class ProcessError(Exception):
    """A program that ended, or was not ready in time; carries the end of its log."""


@dataclass(frozen=True, slots=True)
class _OfAnotherProcess:
    pid: int

    def poll(self) -> None:
        """It runs for as long as the one who started it lets others use it (see shared.py)."""


class Program:
    """One running program. Use as a context manager, or call `stop` on every way out.

    A copy of it in another process (pickle) can look at it and send signals; only who started it can stop it.
    """

    def __init__(
        self, name: str, command: Sequence[str], log: Path, *, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment} if environment else None,
                start_new_session=True,
            )

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_process": _OfAnotherProcess(self.pid)}

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """To the whole group; a program that has ended already is left in peace."""
        if self.is_running:
            os.killpg(self.pid, number)

    def wait(self, timeout_s: float) -> int:
        """The exit status; negative for a signal, as subprocess has it."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise ProcessError(f"{self.name} did not end within {timeout_s:g} s\n{self.tail()}") from None

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """SIGTERM, and SIGKILL for one that does not listen; the exit status."""
        self.signal(signal.SIGTERM)
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        self.signal(signal.SIGKILL)
        return self._process.wait(STOP_TIMEOUT_S)

    def wait_until(self, is_ready: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Poll `is_ready`; ProcessError when the program ends first, or time is up."""

        def look() -> bool:
            if is_ready():
                return True
            if not self.is_running:
                status = self._process.returncode
                raise ProcessError(f"{self.name} ended with status {status} before {what}\n{self.tail()}")
            return False

        try:
            wait_until(look, what, timeout_s)
        except TimeoutError as error:
            raise ProcessError(f"{self.name}: {error}\n{self.tail()}") from None

    def output(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def tail(self) -> str:
        """The end of the log, for error messages."""
        lines = self.output().splitlines()[-TAIL_LINES:]
        return "\n".join([f"--- end of {self.log} ---", *lines, "---"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
