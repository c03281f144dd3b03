"""A real ZooKeeper server on loopback, from the jars that come with a Kafka that needs one.

with ZooKeeper() as zookeeper:
    ... zookeeper.connect ...

with Ensemble() as ensemble:
    ... ensemble.connect ... ensemble.servers[2].crash() ...
"""

import shutil
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.harness.jars import LAST_ON_ZOOKEEPER, jar_dir
from tests.harness.ports import LOOPBACK, free_port, free_ports
from tests.harness.process import Program

START_TIMEOUT_S: Final = 60.0


class ZooKeeper:
    """One server, as a context manager; gone, data too, at its end.

    `properties` are added to zoo.cfg, `java_options` to the command line; `my_id` is its number in an ensemble. Kafka
    3.9.1 has ZooKeeper 3.8.4, and 2.8.2 has 3.5.9.
    """

    def __init__(
        self,
        *,
        properties: Mapping[str, str] | None = None,
        java_options: tuple[str, ...] = (),
        my_id: int | None = None,
        of_kafka: str = LAST_ON_ZOOKEEPER,
    ) -> None:
        self.port = free_port()
        self._properties = dict(properties or {})
        self._java_options = java_options
        self._my_id = my_id
        self._jars = f"kafka-{of_kafka}"
        self._folder: Path | None = None
        self.program: Program | None = None

    @property
    def connect(self) -> str:
        """`host:port`."""
        return f"{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Start it, on its port and with its data if it ran before, until it serves."""
        self.launch()
        self.wait_serving()

    def launch(self) -> None:
        """Start it; one of an ensemble serves when others are there."""
        jars = jar_dir(self._jars)  # says what to type when it is not there
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="sluice-zookeeper-"))
        settings = {
            "dataDir": str(self._folder / "data"),
            "clientPort": str(self.port),
            "clientPortAddress": LOOPBACK,
            "tickTime": "500",
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr,dump",
            **self._properties,
        }
        data = self._folder / "data"
        data.mkdir(exist_ok=True)
        if self._my_id is not None:
            (data / "myid").write_text(str(self._my_id), encoding="ascii")
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

    def wait_serving(self) -> None:
        """Until it serves, perhaps for reading alone; stopped when it does not."""
        if self.program is None:
            raise RuntimeError("ZooKeeper has not been launched")
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

    def said(self, command: str = "srvr") -> str:
        """What it answers to `srvr` or `dump`; nothing if it does not answer."""
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=1.0) as connection:
                connection.sendall(command.encode())
                return connection.makefile("rb").read().decode()
        except OSError:
            return ""

    def _serves(self) -> bool:
        # `ruok` is answered before it serves, and `srvr` then says so in other words.
        return "Zookeeper version" in self.said()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Ensemble:
    """Three servers, as a context manager. One that has lost the others serves those who only want to read."""

    def __init__(self) -> None:
        ports = free_ports(6)
        peers = {f"server.{each}": f"{LOOPBACK}:{ports[2 * each - 2]}:{ports[2 * each - 1]}" for each in range(1, 4)}
        timing = {"initLimit": "20", "syncLimit": "10"}
        self.servers = [
            ZooKeeper(properties=peers | timing, java_options=("-Dreadonlymode.enabled=true",), my_id=each)
            for each in range(1, 4)
        ]

    @property
    def connect(self) -> str:
        """`host:port,…`."""
        return ",".join(server.connect for server in self.servers)

    def __enter__(self) -> Self:
        try:
            for server in self.servers:
                server.launch()
            for server in self.servers:
                server.wait_serving()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """All at once, and for good."""
        for server in self.servers:
            server.stop()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
