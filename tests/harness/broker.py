"""One KRaft node, broker and controller at once: its properties, its format, its process."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.harness.jars import classpath
from tests.harness.ports import LOOPBACK, free_port
from tests.harness.process import Program
from tests.harness.wire import Address, answers_api_versions

GUARD_HOST: Final = "127.0.0.2"
START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 30.0
# Small and quick to start; a benchmark's broker is not the thing measured.
JAVA_OPTIONS: Final = (
    "-Xmx384m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
)


@dataclass(frozen=True, slots=True)
class Node:
    """Where one node listens.

    `direct` is a listener as any broker has one. The listener GUARDED is for what goes through the proxy: it listens on
    `guarded_listener` and advertises `guarded`, the same port of another loopback address, where only a ConnectionWatch
    stands (see watch.py).
    """

    node_id: int
    direct: Address
    guarded_listener: Address
    controller: Address

    @classmethod
    def choose(cls, node_id: int) -> "Node":
        direct, guarded, controller = (Address(LOOPBACK, free_port()) for _ in range(3))
        return cls(node_id, direct, guarded, controller)

    @property
    def guarded(self) -> Address:
        return Address(GUARD_HOST, self.guarded_listener.port)


class Broker:
    """The process of one node, and its folder. Starting it again keeps its data."""

    def __init__(self, version: str, node: Node, voters: str, folder: Path, extra: Mapping[str, str]) -> None:
        self.node = node
        self.log_dir = folder / "log"
        self._version = version
        self._folder = folder
        self._properties = folder / "server.properties"
        self._program: Program | None = None
        folder.mkdir(parents=True)
        chosen = {**_properties(node, voters, self.log_dir), **extra}
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in chosen.items()), encoding="utf-8")

    @property
    def is_running(self) -> bool:
        return self._program is not None and self._program.is_running

    def start(self, cluster_id: str) -> None:
        """Start the process, formatting the folder first when it is new. `wait_ready` says when it serves."""
        java = f"exec java {' '.join(JAVA_OPTIONS)} -cp '{classpath(f'kafka-{self._version}')}'"
        file = f"'{self._properties}'"
        script = f"{java} kafka.Kafka {file}"
        if not (self.log_dir / "meta.properties").exists():
            script = f"({java} kafka.tools.StorageTool format -t {cluster_id} -c {file}) && {script}"
        name = f"broker {self.node.node_id} of Kafka {self._version}"
        self._program = Program(name, ["/bin/sh", "-c", script], self._folder / "broker.log")

    def wait_ready(self) -> None:
        """Until the broker answers ApiVersions; ProcessError with the end of its log when it does not."""
        self._running().wait_until(
            lambda: answers_api_versions(self.node.direct), "ApiVersions answer", START_TIMEOUT_S
        )

    def stop(self) -> None:
        """Controlled shutdown: the broker hands its leaders over first."""
        self._running().stop(STOP_TIMEOUT_S)

    def kill(self) -> None:
        """At once, as a broker that crashes; also one that was never started."""
        if self._program is not None:
            self._program.kill()

    def signal(self, number: signal.Signals) -> None:
        """SIGSTOP and SIGCONT make a broker that hangs."""
        self._running().signal(number)

    def log_tail(self) -> str:
        return self._running().tail()

    def _running(self) -> Program:
        if self._program is None:
            raise RuntimeError(f"broker {self.node.node_id} has not been started")
        return self._program


def _properties(node: Node, voters: str, log_dir: Path) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": str(node.node_id),
        "controller.quorum.voters": voters,
        "listeners": f"DIRECT://{node.direct},GUARDED://{node.guarded_listener},CONTROLLER://{node.controller}",
        "advertised.listeners": f"DIRECT://{node.direct},GUARDED://{node.guarded}",
        "listener.security.protocol.map": "DIRECT:PLAINTEXT,GUARDED:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "DIRECT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(log_dir),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.num.partitions": "3",
        "transaction.state.log.min.isr": "1",
        # Without these share groups hang on a small cluster; brokers before 4.0 do not know them and warn.
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.num.partitions": "3",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "auto.create.topics.enable": "false",
        # A node that comes back waits until its former life has timed out: 9 s by default.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        # Two cores are shared with everything else that a test runs.
        "num.network.threads": "2",
        "num.io.threads": "4",
    }
