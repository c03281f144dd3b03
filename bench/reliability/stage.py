"""The target of faults: three brokers, and Sluice with two workers, a fault gate before each of their addresses."""

import shutil
import signal
import ssl
import tempfile
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

import psutil

from bench.reliability.clients import Topics
from bench.reliability.ledger import Mode
from bench.reliability.wire import FaultGate
from bench.reliability.writer import CA, PARTITIONS
from tests.harness.broker import GUARD_HOST
from tests.harness.certificates import SERVER_HOSTS, Authority, Identity, common_name
from tests.harness.kafka import KafkaCluster
from tests.harness.ports import LOOPBACK
from tests.harness.process import Program
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import Address

NODE_IDS: Final = (1, 2, 3)
WORKERS: Final = 2
GREEDY: Final = "greedy"
GREEDY_BYTES_PER_S: Final = 100_000
TLS: Final = "TLS"
"""The second listener, where there are clients for it."""
PROPERTIES: Final = {
    "broker.session.timeout.ms": "9000",  # Kafka's own: a late broker of a busy machine keeps its leaders
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}
THROTTLED_BYTES_PER_S: Final = 40_000
"""The quota of each producer of `Mode.ONE`, at each broker: some requests always wait for their turn."""


class Stage:
    """As a context manager; `clients` and `brokers` are the gates before Sluice and before the brokers."""

    def __init__(self, families: tuple[str, ...], *, instances: int = 1, over_tls: Collection[str] = ()) -> None:
        """With several instances, they elect the owners of brokers; families `over_tls` go around the fault gates."""
        self.folder = Path(tempfile.mkdtemp(prefix="sluice-reliability-"))
        self.families = families
        self.writers: list[Program] = []
        """The clients of the trial under way."""
        self.cluster = KafkaCluster(node_ids=NODE_IDS, properties=PROPERTIES)
        self.replicated: list[str] = []
        """Topics whose leaders can move."""
        self.over_tls = over_tls
        self.authority = Authority(self.folder)
        self._identity = self.authority.issue("sluice", common_name("sluice"), SERVER_HOSTS)
        (self.folder / "secret").write_text("a secret of all instances")
        self._count = instances
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.cluster)
            ends = {node.node_id: node.endpoints["PLAIN"] for node in self.cluster.nodes}
            self.brokers = {
                node_id: stack.enter_context(FaultGate(end.guarded, end.guarded_listener))
                for node_id, end in ends.items()
            }
            self.instances = [stack.enter_context(self._instance(number)) for number in range(self._count)]
            self.sluice = self.instances[0]
            """The one that faults strike."""
            addresses = [at for each in self.instances for at in (each.address, *each.broker_addresses.values())]
            self.clients = [stack.enter_context(FaultGate(Address(GUARD_HOST, at.port), at)) for at in addresses]
            self.bootstrap = ",".join(f"{GUARD_HOST}:{each.address.port}" for each in self.instances)
            self._stack = stack.pop_all()
        return self

    def _instance(self, number: int) -> SluiceProcess:
        settings: dict[str, Any] = {"workers": WORKERS, "cluster": {"refresh": "1s"}}
        if self._count > 1:
            owners = {"instance": f"edge-{number}", "group": "sluice", "secret_file": str(self.folder / "secret")}
            settings["owners"] = {**owners, "heartbeat": "500ms"}
        tls = {"certificate": str(self._identity.certificate), "key": str(self._identity.key)}
        return SluiceProcess(
            self.cluster.guarded_bootstrap,
            NODE_IDS,
            quotas=self.quotas(lambda: f"producer_byte_rate: {THROTTLED_BYTES_PER_S}"),
            advertise=GUARD_HOST,
            settings=settings,
            listeners={TLS: {"tls": tls, "advertise": LOOPBACK}} if self.over_tls else {},
        )

    def quotas(self, limit: Callable[[], str]) -> str:
        """A quota file: the greedy client's rule, and one with that limit for each producer of `Mode.ONE`."""
        limits = {GREEDY: f"producer_byte_rate: {GREEDY_BYTES_PER_S}"}
        limits |= {f"{family}-{Mode.ONE}": limit() for family in self.families}
        return "quotas:\n" + "".join(f"- {{entity: {{client-id: {name}}}, {said}}}\n" for name, said in limits.items())

    def way_of(self, family: str) -> tuple[str, dict[str, str]]:
        """Its bootstrap addresses and environment (see writer.py)."""
        if family not in self.over_tls:
            return self.bootstrap, {}
        return ",".join(each.listeners[TLS].bootstrap for each in self.instances), {CA: str(self.authority.certificate)}

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

    def delete_topics(self, topics: Topics) -> None:
        with self.cluster.admin() as admin:
            admin.delete_topics([*topics.values()])

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
        """The processes of Sluice that serve clients; all of its children while it has just started."""
        children = psutil.Process(self.sluice.pid).children()
        busy = [each for each in children if any(end.status == "ESTABLISHED" for end in each.net_connections("tcp"))]
        return busy or children

    def restart(
        self, *, kill: bool = False, environment: Mapping[str, str] | None = None, log: Path | None = None
    ) -> None:
        """Stop Sluice, gracefully or not, and start it again in this environment, its output there."""
        was_ready = self.sluice.is_ready()  # else a signal may end it before it knows the signal
        self.sluice.signal(signal.SIGKILL if kill else signal.SIGTERM)
        status = self.sluice.wait()
        if was_ready and not kill and status != 0:
            raise RuntimeError(f"Sluice ended with status {status}")
        self.sluice.environment, self.sluice.log = environment or {}, log
        self.sluice.launch()
