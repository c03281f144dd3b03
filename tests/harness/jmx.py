"""What a broker says of its own request quota, by JMX: the time of its threads that each client-id has taken."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.harness.ports import LOOPBACK

_PROGRAM: Final = Path(__file__).with_name("RequestTime.java")


def java_options(port: int) -> Sequence[str]:
    """What a broker is started with to be asked on that port."""
    prefix = "-Dcom.sun.management.jmxremote"
    return (
        f"{prefix}.port={port}",
        f"{prefix}.rmi.port={port}",
        f"{prefix}.authenticate=false",
        f"{prefix}.ssl=false",
        f"-Djava.rmi.server.hostname={LOOPBACK}",
    )


class RequestTimes:
    """Asks one broker, as a context manager. It knows the client-ids that its own request quotas concern."""

    def __init__(self, port: int) -> None:
        command = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", str(_PROGRAM), str(port)]
        self._program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def percent(self) -> dict[str, float]:
        """Percent of one thread, over the broker's window of quotas, by client-id; it never says what a total is."""
        if self._program.stdin is None or self._program.stdout is None:
            raise RuntimeError("the program has no pipes")
        self._program.stdin.write("\n")
        self._program.stdin.flush()
        found = {}
        while line := self._program.stdout.readline().rstrip("\n"):
            client_id, _, percent = line.rpartition("\t")
            found[client_id] = float(percent)
        return found

    def __enter__(self) -> Self:
        self.percent()  # it has started
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._program.kill()
        self._program.communicate()
