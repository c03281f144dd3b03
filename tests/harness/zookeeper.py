"""A real ZooKeeper server on loopback, from the jars that come with the last Kafka that needed one (3.8.4).

with ZooKeeper() as zookeeper:
    ... zookeeper.connect ...
"""

import shutil
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.harness.jars import LAST_ON_ZOOKEEPER, jar_dir
from tests.harness.ports import LOOPBACK, free_port
from tests.harness.process import Program

JARS: Final = f"kafka-{LAST_ON_ZOOKEEPER}"
START_TIMEOUT_S: Final = 60.0


class ZooKeeper:
    """One server, as a context manager; gone, data too, at its end.

    `properties` are added to zoo.cfg, `java_options` to the command line.
    """

    def __init__(self, *, properties: Mapping[str, str] | None = None, java_options: tuple[str, ...] = ()) -> None:
        self.port = free_port()
        self._properties = dict(properties or {})
        self._java_options = java_options
        self._folder: Path | None = None
        self.program: Program | None = None

    @property
    def connect(self) -> str:
        """`host:port`."""
        return f"{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Start it, on its port and with its data if it ran before, until it serves."""
        jars = jar_dir(JARS)  # says what to type when it is not there
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="sluice-zookeeper-"))
        settings = {
            "dataDir": str(self._folder / "data"),
            "clientPort": str(self.port),
            "clientPortAddress": LOOPBACK,
            "tickTime": "500",
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr",
            **self._properties,
        }
        file = self._folder / "zoo.cfg"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
        command = [
            "java",
            "-Xmx256m",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            *self._java_options,
            "-cp",
            f"{jars}/*",
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(file),
        ]
        self.program = Program("ZooKeeper", command, self._folder / "log.txt")
        try:
            self.program.wait_until(self._serves, "it served", START_TIMEOUT_S)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """At once, and for good."""
        self.crash()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def crash(self) -> None:
        """At once; its data stays for another `start`."""
        if self.program is not None:
            self.program.kill()
            self.program = None

    def _serves(self) -> bool:
        # `ruok` is answered before it serves, and `srvr` then says so in other words.
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=1.0) as connection:
                connection.sendall(b"srvr")
                return connection.makefile("rb").read().startswith(b"Zookeeper version")
        except OSError:
            return False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
