"""kafka-configs of a version, many commands one after the other in one process.

with ConfigCommands("4.3.1") as tool:
    ran = tool.run("--bootstrap-server", address, "--describe", "--user", "alice")
"""

import base64
import subprocess
from types import TracebackType
from typing import Final, NamedTuple, Self

from tests.harness.clients.java import distribution_command

_SEPARATOR: Final = "\x1f"
_QUIET: Final = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"  # of the distribution's own scripts nobody sees a log


class Ran(NamedTuple):
    """What a command came to."""

    status: int
    out: str
    err: str


class ConfigCommands:
    """The process, as a context manager."""

    def __init__(self, version: str) -> None:
        self._command = distribution_command(version, "ConfigCommands", _QUIET)
        self._process: subprocess.Popen[str] | None = None

    def run(self, *arguments: str) -> Ran:
        """Run one command to its end."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(_SEPARATOR.join(arguments) + "\n")
        self._process.stdin.flush()
        status, out, err = self._process.stdout.readline().rstrip("\n").split(" ")
        return Ran(int(status), *(base64.b64decode(each).decode() for each in (out, err)))

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
