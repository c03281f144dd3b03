"""One real broker, with a listener for each proxy.

The listener of a relaying proxy advertises the proxy's port, so that clients, which connect to advertised addresses,
stay with it. Sluice rewrites addresses, and connects to advertised ones: its listener advertises itself.
"""

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from kafka.errors import KafkaError

from bench.errors import BenchError
from bench.programs import DIRECT, PORTS
from tests.harness.admin import AdminError, BrokerAdmin
from tests.harness.broker import Broker, Node, Setup
from tests.harness.jars import NEWEST_BROKER, JarError
from tests.harness.kafka import CLUSTER_ID
from tests.harness.ports import LOOPBACK, free_port, free_ports
from tests.harness.wire import Address

NODE_ID: Final = 0
SMALL, BULK, STORED = "bench-small", "bench-bulk", "bench-stored"
"""Topics: for replayed frames and for large batches (short retention), and one to be consumed."""
PARTITIONS: Final = 6
"""A producer sends full batches of several partitions in one request, as in any real cluster."""

_RETENTION: Final = {"retention.bytes": str(128 << 20), "segment.bytes": str(64 << 20), "file.delete.delay.ms": "1000"}
_TOPICS: Final = {SMALL: _RETENTION, BULK: _RETENTION, STORED: {}}
_JAVA_OPTIONS: Final = ("-XX:TieredStopAtLevel=4",)
"""Both JIT compilers: this broker runs for minutes, and the less of its core it needs, the more load fits."""
_PROPERTIES: Final = {"log.retention.check.interval.ms": "1000", "log.initial.task.delay.ms": "1000"}


class RealBroker:
    """One KRaft node, broker and controller, on one core; its logs in ``folder``. Raises BenchError if it does not
    start.

    ``names``: the proxies with a listener, including ``direct``. ``relays``: those that only pass bytes on.
    """

    def __init__(self, folder: Path, core: int, names: Sequence[str], relays: Collection[str]) -> None:
        self._ports = {name: free_ports(PORTS)[0] for name in names}
        self._listeners = {name: free_port() for name in names if name != DIRECT}
        node = Node.choose(NODE_ID)
        self._listeners[DIRECT] = self._ports[DIRECT] = node.direct.port
        properties = {**_PROPERTIES, **self._listener_properties(node, relays)}
        voters = f"{NODE_ID}@{node.controller}"
        self._broker = Broker(node, Setup(NEWEST_BROKER, voters, (), (), properties, _JAVA_OPTIONS), folder)
        try:
            with _on(core):
                self._broker.start(CLUSTER_ID)
            self._broker.wait_ready()
            with BrokerAdmin(str(node.direct)) as admin:
                admin.wait_for_brokers([NODE_ID])
                for topic, configs in _TOPICS.items():
                    admin.create_topic(topic, partitions=PARTITIONS, replicas=1, configs=configs)
        except JarError as error:
            raise BenchError(str(error)) from None
        except (AdminError, KafkaError) as error:
            tail = self._broker.log_tail()
            self.close()
            raise BenchError(f"the broker of the real-* rows: {error}\n{tail}") from None
        except BaseException:
            self.close()
            raise

    def port(self, name: str) -> int:
        """Return the port that the proxy must listen on; for ``direct`` the broker's own."""
        return self._ports[name]

    def listener_port(self, name: str) -> int:
        """Return the broker's port for the proxy."""
        return self._listeners[name]

    @property
    def is_running(self) -> bool:
        return self._broker.is_running

    def log_tail(self) -> str:
        return self._broker.log_tail()

    def close(self) -> None:
        """Kill it; its data is not kept."""
        self._broker.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _listener_properties(self, node: Node, relays: Collection[str]) -> dict[str, str]:
        """Return listener properties that replace the harness's own, whose listeners advertise themselves."""
        names = {name: "PLAIN" if name == DIRECT else name.upper() for name in self._ports}
        listening = [f"{names[name]}://{Address(LOOPBACK, self._listeners[name])}" for name in names]
        ports = {name: (self._ports if name in relays else self._listeners)[name] for name in names}
        advertised = [f"{names[name]}://{Address(LOOPBACK, port)}" for name, port in ports.items()]
        return {
            "listeners": ",".join([*listening, f"CONTROLLER://{node.controller}"]),
            "advertised.listeners": ",".join(advertised),
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in (*names.values(), "CONTROLLER")),
        }


@contextmanager
def _on(core: int) -> Iterator[None]:
    """Pin processes started within the block to a core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
