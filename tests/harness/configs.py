"""kafka-configs, as an operator uses it: any number of commands in one process of Java.

with KafkaConfigs("3.9.1", "--bootstrap-server", cluster.bootstrap) as configs:
    configs.alter(Entity(user="alice"), producer_byte_rate=1024)
    configs.describe(Entity(user="alice"))
"""

import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.harness.admin import AdminError, Entity
from tests.harness.jars import classpath

_PROGRAM: Final = Path(__file__).with_name("ConfigCommands.java")
_TAIL_LINES: Final = 15


class KafkaConfigs:
    """The tool of one release for one cluster, as a context manager. `where` says which, in its own words."""

    def __init__(self, version: str, *where: str, java_options: tuple[str, ...] = ()) -> None:
        options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
        self._command = ["java", *options, *java_options, "-cp", classpath(f"kafka-{version}"), str(_PROGRAM)]
        self._where = where
        self._program: subprocess.Popen[str] | None = None

    def run(self, *arguments: str) -> str:
        """What the tool prints; AdminError with it where the tool ends with another status than 0."""
        if self._program is None or self._program.stdin is None or self._program.stdout is None:
            raise RuntimeError("kafka-configs has not been started")
        if any(character in word for word in arguments for character in "\t\r\n"):
            raise ValueError("no tab and no end of line is passed on here")
        self._program.stdin.write("\t".join([*self._where, *arguments]) + "\n")
        self._program.stdin.flush()
        said: list[str] = []
        for line in self._program.stdout:
            if line.startswith("\0"):
                text = "".join(said)
                if line.strip("\0\n") == "done":
                    return text
                raise AdminError(f"kafka-configs {' '.join(arguments)} failed:\n{text}")
            said.append(line)
        raise AdminError(f"kafka-configs ended:\n{''.join(said[-_TAIL_LINES:])}")

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

    def __enter__(self) -> Self:
        self._program = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8"
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._program is not None:
            self._program.kill()
            self._program.communicate()
