"""What faults strike: three brokers, and Sluice with two workers, behind a fault gate at each of their addresses."""

import shutil
import signal
import ssl
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

import psutil

from bench.reliability.clients import Topics
from bench.reliability.ledger import Mode
from bench.reliability.wire import FaultGate
from bench.reliability.writer import PARTITIONS
from tests.harness.broker import GUARD_HOST
from tests.harness.certificates import Identity
from tests.harness.kafka import KafkaCluster
from tests.harness.process import Program
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import Address

NODE_IDS: Final = (1, 2, 3)
WORKERS: Final = 2
THRICE: Final = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}
THROTTLED_BYTES_PER_S: Final = 40_000
"""Of each producer of `Mode.ONE`, at each broker: some requests always wait for their turn."""


class Stage:
    """As a context manager; `clients` and `brokers` are the gates before Sluice and before the brokers."""

    def __init__(self, families: tuple[str, ...]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sluice-reliability-"))
        self.families = families
        self.writers: list[Program] = []
        """Those of the fault under way."""
        self.cluster = KafkaCluster(node_ids=NODE_IDS, properties=THRICE)
        self.replicated: list[str] = []
        """Topics whose leaders can move."""
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.cluster)
            ends = {node.node_id: node.endpoints["PLAIN"] for node in self.cluster.nodes}
            self.brokers = {
                node_id: stack.enter_context(FaultGate(end.guarded, end.guarded_listener))
                for node_id, end in ends.items()
            }
            quotas = "quotas:\n" + "".join(
                f"- {{entity: {{client-id: {family}-{Mode.ONE}}}, producer_byte_rate: {THROTTLED_BYTES_PER_S}}}\n"
                for family in self.families
            )
            self.sluice = stack.enter_context(
                SluiceProcess(
                    self.cluster.guarded_bootstrap,
                    NODE_IDS,
                    quotas=quotas,
                    advertise=GUARD_HOST,
                    settings={"workers": WORKERS, "cluster": {"refresh": "1s"}},
                )
            )
            addresses = [self.sluice.address, *self.sluice.broker_addresses.values()]
            self.clients = [stack.enter_context(FaultGate(Address(GUARD_HOST, at.port), at)) for at in addresses]
            self.bootstrap = str(Address(GUARD_HOST, self.sluice.address.port))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def create_topics(self, name: str) -> Topics:
        topics = {mode: f"{name}-{mode}" for mode in Mode}
        self.replicated = [topic for mode, topic in topics.items() if mode is not Mode.ONE]
        for mode, topic in topics.items():
            kept: dict[str, Any] = {"replicas": 1} if mode is Mode.ONE else {"replicas": 3, "min.insync.replicas": "2"}
            self.cluster.create_topic(topic, partitions=PARTITIONS, **kept)
        return topics

    def ends(self, topics: Topics) -> dict[tuple[str, int], int]:
        """The end of each partition, once no transaction is open in it."""
        with self.cluster.admin() as admin:
            return {
                (topic, partition): admin.end_offset(topic, partition)
                for topic in topics.values()
                for partition in range(PARTITIONS)
            }

    def broker_certificate(self, identity: Identity | None) -> None:
        """Have the gates before the brokers speak TLS with this certificate, or none; connections are ended."""
        context = None
        if identity is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(identity.certificate, identity.key)
        for gate in self.brokers.values():
            gate.shut()
            gate.tls = context
            gate.open()

    def workers(self) -> list[psutil.Process]:
        """The processes of Sluice that serve clients."""
        children = psutil.Process(self.sluice.pid).children()
        return [each for each in children if any(end.status == "ESTABLISHED" for end in each.net_connections("tcp"))]

    def restart(
        self, *, kill: bool = False, environment: Mapping[str, str] | None = None, log: Path | None = None
    ) -> None:
        """Stop Sluice, gracefully or not, and start it again in this environment, its output there."""
        if kill:
            self.sluice.signal(signal.SIGKILL)
            self.sluice.wait()
        elif (status := self.sluice.stop()) != 0:
            raise RuntimeError(f"Sluice ended with status {status}")
        self.sluice.environment, self.sluice.log = environment or {}, log
        self.sluice.launch()
