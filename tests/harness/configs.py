"""kafka-configs, as an operator uses it: any number of commands in one process of Java.

with KafkaConfigs("3.9.1", "--bootstrap-server", cluster.bootstrap) as configs:
    configs.alter(Entity(user="alice"), producer_byte_rate=1024)
    configs.describe(Entity(user="alice"))
"""

import base64
import subprocess
from types import TracebackType
from typing import Final, NamedTuple, Self

from tests.harness.admin import AdminError, Entity
from tests.harness.clients.java import distribution_command

_SEPARATOR: Final = "\x1f"
_QUIET: Final = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"  # of the distribution's own scripts nobody sees a log


class Ran(NamedTuple):
    """What a command came to."""

    status: int
    out: str
    err: str


class ConfigCommands:
    """The tool of one release, as a context manager."""

    def __init__(self, version: str, *java_options: str) -> None:
        self._command = distribution_command(version, "ConfigCommands", _QUIET, *java_options)
        self._process: subprocess.Popen[str] | None = None

    def ask(self, *arguments: str) -> Ran:
        """Run one command to its end, whatever that is."""
        if self._process is None or self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("kafka-configs has not been started")
        if any(character in word for word in arguments for character in f"{_SEPARATOR}\r\n"):
            raise ValueError("no unit separator and no end of line is passed on here")
        self._process.stdin.write(_SEPARATOR.join(arguments) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise AdminError(f"kafka-configs ended with {self._process.wait()}")
        status, out, err = line.rstrip("\n").split(" ")
        return Ran(int(status), *(base64.b64decode(each).decode() for each in (out, err)))

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8", start_new_session=True
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


class KafkaConfigs(ConfigCommands):
    """The tool for one cluster, with commands that have to succeed. `where` says which, in its own words."""

    def __init__(self, version: str, *where: str, java_options: tuple[str, ...] = ()) -> None:
        super().__init__(version, *java_options)
        self._where = where

    def run(self, *arguments: str) -> str:
        """What the tool prints; AdminError with it where the tool ends with another status than 0."""
        ran = self.ask(*self._where, *arguments)
        if ran.status:
            raise AdminError(f"kafka-configs {' '.join(arguments)} failed:\n{ran.out}{ran.err}")
        return ran.out + ran.err

    def alter(self, entity: Entity, **values: float | str | None) -> None:
        """Set quotas, or credentials (None: remove)."""
        added = ",".join(f"{name.replace('_SHA_', '-SHA-')}={v}" for name, v in values.items() if v is not None)
        deleted = ",".join(name.replace("_SHA_", "-SHA-") for name, value in values.items() if value is None)
        said = self.run(
            "--alter",
            *entity.arguments(),
            *(["--add-config", added] if added else []),
            *(["--delete-config", deleted] if deleted else []),
        )
        if "Completed" not in said:
            raise AdminError(f"kafka-configs of {entity} did not say that it was done:\n{said}")

    def describe(self, *kinds: str) -> str:
        """What it says of all entities of these kinds: `users`, `clients`, both for pairs, `ips`."""
        return self.run("--describe", *(word for kind in kinds for word in ("--entity-type", kind)))
