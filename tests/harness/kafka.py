"""A real Kafka cluster on loopback.

with KafkaCluster(node_ids=(1, 5, 42)) as cluster:
    cluster.create_topic("t", leader=5)
    ... cluster.bootstrap ...
"""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.harness.admin import BrokerAdmin, Entity, set_broker_quota, set_client_quotas
from tests.harness.broker import PLAIN, QUICK_TO_START, Broker, BrokerListener, Node, Setup
from tests.harness.jars import NEWEST_BROKER, jar_dir
from tests.harness.wire import Address

# Any 16 bytes in Kafka's base64 form; StorageTool wants one, and each cluster has folders of its own.
CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qg"


class KafkaCluster:
    """`len(node_ids)` combined KRaft nodes of one version, as a context manager; gone, data too, at its end.

    With `zookeeper` (a zookeeper.connect) they are brokers on that ZooKeeper, as there were up to 3.9.
    `properties` are added to every node's server.properties, `listeners` to the plaintext one. `scram` are users there
    from the first start, as StorageTool's --add-scram takes them: `SCRAM-SHA-256=[name=carol,password=…]`.
    With `addresses_of` nodes take over the addresses of those of another cluster, one by one: these must have stopped.
    `virtual_machine` are Java's flags: AS_IN_PRODUCTION where a test measures what requests cost a broker.
    """

    def __init__(
        self,
        *,
        version: str = NEWEST_BROKER,
        node_ids: Sequence[int] = (0,),
        properties: Mapping[str, str] | None = None,
        listeners: Sequence[BrokerListener] = (),
        scram: Sequence[str] = (),
        java_options: Sequence[str] = (),
        virtual_machine: Sequence[str] = QUICK_TO_START,
        zookeeper: str | None = None,
        cluster_id: str = CLUSTER_ID,
        addresses_of: "KafkaCluster | None" = None,
    ) -> None:
        self.version = version
        self.node_ids = tuple(node_ids)
        self.brokers: dict[int, Broker] = {}
        self._properties = dict(properties or {})
        self._listeners = tuple(listeners)
        self._scram = tuple(scram)
        self._java_options = tuple(java_options)
        self._virtual_machine = tuple(virtual_machine)
        self._zookeeper = zookeeper
        self._cluster_id = cluster_id
        self._addresses_of = addresses_of
        self._folder: Path | None = None

    @property
    def nodes(self) -> list[Node]:
        return [broker.node for broker in self.brokers.values()]

    @property
    def bootstrap(self) -> str:
        """`host:port,…` of the brokers themselves."""
        return self.bootstrap_of(PLAIN)

    @property
    def guarded_bootstrap(self) -> str:
        """`host:port,…` of the guarded listeners, where a ConnectionWatch lets only the proxy through."""
        return self.bootstrap_of(PLAIN, guarded=True)

    def bootstrap_of(self, listener: str, *, guarded: bool = False) -> str:
        """The same of another listener."""
        endpoints = [node.endpoints[listener] for node in self.nodes]
        return ",".join(str(endpoint.guarded if guarded else endpoint.direct) for endpoint in endpoints)

    def direct(self, node_id: int) -> Address:
        return self.brokers[node_id].node.direct

    def start(self) -> None:
        """All nodes at once, until every one serves and knows all others."""
        jar_dir(f"kafka-{self.version}")  # says what to type when it is not there
        self._folder = Path(tempfile.mkdtemp(prefix="sluice-kafka-"))
        nodes = [Node.choose(node_id, self._listeners) for node_id in self.node_ids]
        if self._addresses_of is not None:
            taken = zip(nodes, self._addresses_of.nodes, strict=True)
            nodes = [replace(node, endpoints=old.endpoints) for node, old in taken]
        setup = Setup(
            version=self.version,
            voters=",".join(f"{node.node_id}@{node.controller}" for node in nodes),
            listeners=self._listeners,
            scram=self._scram,
            properties=self._properties,
            java_options=self._java_options,
            virtual_machine=self._virtual_machine,
            zookeeper=self._zookeeper,
        )
        for node in nodes:
            self.brokers[node.node_id] = Broker(node, setup, self._folder / str(node.node_id))
        try:
            for broker in self.brokers.values():
                broker.start(self._cluster_id)
            for broker in self.brokers.values():
                broker.wait_ready()
            with self.admin() as admin:
                admin.wait_for_brokers(self.node_ids)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """At once: nothing of a test cluster is worth a controlled shutdown."""
        for broker in self.brokers.values():
            broker.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def stop_broker(self, node_id: int, *, crash: bool = False) -> None:
        """A controlled shutdown (leaders move first), or a crash."""
        broker = self.brokers[node_id]
        if crash:
            broker.kill()
        else:
            broker.stop()

    def start_broker(self, node_id: int) -> None:
        """Start a stopped broker again, on its addresses and with its data, until it serves."""
        broker = self.brokers[node_id]
        broker.start(self._cluster_id)
        broker.wait_ready()
        running = [each for each, other in self.brokers.items() if other.is_running]
        with self.admin() as admin:
            admin.wait_for_brokers(running)

    def admin(self) -> BrokerAdmin:
        """An administrator that talks to the brokers that run, directly."""
        running = [broker.node.direct for broker in self.brokers.values() if broker.is_running]
        return BrokerAdmin(",".join(map(str, running)))

    def create_topic(
        self, name: str, *, partitions: int = 1, leader: int | None = None, replicas: int = 1, **configs: str
    ) -> None:
        """Create a topic and wait until it has leaders; all partitions are led by `leader` when it is given."""
        with self.admin() as admin:
            if leader is None:
                admin.create_topic(name, partitions=partitions, replicas=replicas, configs=configs)
            else:
                others = [node_id for node_id in self.node_ids if node_id != leader]
                admin.create_assigned(name, dict.fromkeys(range(partitions), [leader, *others][:replicas]), configs)

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Make `to` the leader, by electing it among the replicas; returns when it leads. It must be a replica."""
        with self.admin() as admin:
            admin.move_leader(topic, partition, to)

    def leader(self, topic: str, partition: int = 0) -> int:
        with self.admin() as admin:
            return admin.leader(topic, partition)

    def set_quota(self, entity: Entity, **quotas: float | None) -> None:
        """Set (None: remove) the cluster's own quotas, as kafka-configs does; in force when it returns."""
        set_broker_quota(self.version, self.bootstrap, entity, quotas)

    def set_client_quotas(self, quota: str, limits: Mapping[str, float | None]) -> None:
        """One quota of many client-ids; as `set_quota`, and at once."""
        set_client_quotas(self.nodes[0].direct, quota, limits)

    def log_folder(self, topic: str, partition: int = 0) -> Path:
        """Where the leader of now keeps the partition: what has arrived is to be seen there, by no client."""
        return self.brokers[self.leader(topic, partition)].log_dir / f"{topic}-{partition}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
