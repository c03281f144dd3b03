"""One KRaft node, broker and controller at once: its properties, its format, its process.

Up to 3.9 it may be a broker on ZooKeeper instead.
"""

import os
import shlex
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from tests.harness.jars import classpath
from tests.harness.ports import LOOPBACK, free_port, free_ports
from tests.harness.process import Program
from tests.harness.wire import Address, answers_api_versions

GUARD_HOST: Final = "127.0.0.2"
WORKERS: Final = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
"""How many processes this test run has."""
WORKER: Final = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
"""Which of them this is; one that takes the place of a crashed one has a number above them."""
PLAIN: Final = "PLAIN"
"""The listener that every node has."""
START_TIMEOUT_S: Final = 240.0  # three seconds on a machine of its own, minutes on one that is shared with too many
STOP_TIMEOUT_S: Final = 30.0
# Small and quick to start, with room for several requests of 100 MiB: a broker allocates what is announced.
QUICK_TO_START: Final = ("-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# What kafka-server-start runs brokers with: where the cost of a request is measured, the compiler and the collector of
# real brokers have to be there. Without them a request takes several times as long.
AS_IN_PRODUCTION: Final = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
_LOGGING: Final = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
)


@dataclass(frozen=True, slots=True)
class BrokerListener:
    """A listener of the brokers beside the plaintext one.

    `properties` are written without Kafka's prefix `listener.name.<name>.`.
    """

    name: str
    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one node has one listener.

    `direct` is as any broker has it. Another listener of the same kind is for what goes through the proxy: it listens
    on `guarded_listener` and advertises `guarded`, the same port of another loopback address, where only a
    ConnectionWatch stands (see watch.py). Each worker process of a test run has one, as each has a watch of its own.
    """

    direct: Address
    guarded_listeners: Sequence[Address]

    @classmethod
    def choose(cls) -> "Endpoint":
        direct, *guarded = [Address(LOOPBACK, port) for port in free_ports(1 + WORKERS)]
        return cls(direct, guarded)

    @property
    def guarded_listener(self) -> Address:
        return self.guarded_listeners[WORKER % WORKERS]

    @property
    def guarded(self) -> Address:
        return _guarded(self.guarded_listener)


@dataclass(frozen=True, slots=True)
class Node:
    """Where one node listens, by the names of the listeners."""

    node_id: int
    controller: Address
    endpoints: Mapping[str, Endpoint]

    @classmethod
    def choose(cls, node_id: int, listeners: Sequence[BrokerListener] = ()) -> "Node":
        names = [PLAIN, *(listener.name for listener in listeners)]
        return cls(node_id, Address(LOOPBACK, free_port()), {name: Endpoint.choose() for name in names})

    @property
    def direct(self) -> Address:
        return self.endpoints[PLAIN].direct


@dataclass(frozen=True, slots=True)
class Setup:
    """What all nodes of a cluster have in common; see KafkaCluster."""

    version: str
    voters: str
    listeners: Sequence[BrokerListener]
    scram: Sequence[str]
    """Users for StorageTool's --add-scram."""
    properties: Mapping[str, str]
    java_options: Sequence[str]
    virtual_machine: Sequence[str] = QUICK_TO_START
    zookeeper: str | None = None
    """What the brokers have for zookeeper.connect; None: they are KRaft nodes."""


class Broker:
    """The process of one node, and its folder. Starting it again keeps its data."""

    def __init__(self, node: Node, setup: Setup, folder: Path) -> None:
        self.node = node
        self.log_dir = folder / "log"
        self._setup = setup
        self._folder = folder
        self._properties = folder / "server.properties"
        self._program: Program | None = None
        folder.mkdir(parents=True)
        chosen = {**_properties(node, setup, self.log_dir), **setup.properties}
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in chosen.items()), encoding="utf-8")

    @property
    def is_running(self) -> bool:
        return self._program is not None and self._program.is_running

    def start(self, cluster_id: str) -> None:
        """Start the process, formatting the folder first when it is new. `wait_ready` says when it serves."""
        jars = classpath(f"kafka-{self._setup.version}")
        java = shlex.join(
            ["exec", "java", *self._setup.virtual_machine, *_LOGGING, *self._setup.java_options, "-cp", jars]
        )
        file = shlex.quote(str(self._properties))
        script = f"{java} kafka.Kafka {file}"
        if self._setup.zookeeper is None and not (self.log_dir / "meta.properties").exists():
            users = shlex.join([word for user in self._setup.scram for word in ("--add-scram", user)])
            script = f"({java} kafka.tools.StorageTool format -t {cluster_id} -c {file} {users}) && {script}"
        name = f"broker {self.node.node_id} of Kafka {self._setup.version}"
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

    def output(self) -> str:
        return self._running().output()

    def log_tail(self) -> str:
        return self._running().tail()

    def _running(self) -> Program:
        if self._program is None:
            raise RuntimeError(f"broker {self.node.node_id} has not been started")
        return self._program


def _properties(node: Node, setup: Setup, log_dir: Path) -> dict[str, str]:
    return {
        **(_in_quorum(node, setup) if setup.zookeeper is None else _on_zookeeper(node, setup.zookeeper)),
        **_listener_properties(node, setup.listeners, in_quorum=setup.zookeeper is None),
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
        "num.network.threads": "2" if not setup.listeners else "1",
        "num.io.threads": "4",
    }


def _in_quorum(node: Node, setup: Setup) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": str(node.node_id),
        "controller.quorum.voters": setup.voters,
        "controller.listener.names": "CONTROLLER",
    }


def _on_zookeeper(node: Node, connect: str) -> dict[str, str]:
    return {"broker.id": str(node.node_id), "zookeeper.connect": connect}


def _listener_properties(node: Node, listeners: Sequence[BrokerListener], *, in_quorum: bool) -> dict[str, str]:
    protocols = {PLAIN: "PLAINTEXT", **{listener.name: listener.protocol for listener in listeners}}
    listening = [f"CONTROLLER://{node.controller}"] if in_quorum else []
    properties = {listener.name: listener.properties for listener in listeners}
    advertised, kinds = [], ["CONTROLLER:PLAINTEXT"]
    own: dict[str, str] = {}
    for name, endpoint in node.endpoints.items():
        addresses = {name: (endpoint.direct, endpoint.direct)}
        for worker, address in enumerate(endpoint.guarded_listeners):
            addresses[f"{name}_GUARDED_{worker}"] = (address, _guarded(address))
        listening += [f"{each}://{bound}" for each, (bound, _) in addresses.items()]
        advertised += [f"{each}://{told}" for each, (_, told) in addresses.items()]
        kinds += [f"{each}:{protocols[name]}" for each in addresses]
        own |= {
            f"listener.name.{each.lower()}.{key}": value
            for each in addresses
            for key, value in properties.get(name, {}).items()
        }
    return {
        "listeners": ",".join(listening),
        "advertised.listeners": ",".join(advertised),
        "listener.security.protocol.map": ",".join(kinds),
        "inter.broker.listener.name": PLAIN,
        **own,
    }


def _guarded(listener: Address) -> Address:
    return Address(GUARD_HOST, listener.port)
