"""Two elected instances of two workers each, one TLS port each, and a host for each broker at its owner."""

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.harness.certificates import Authority, common_name
from tests.harness.clients.kinds import AIOKAFKA, KAFKA_PYTHON, ClientKind
from tests.harness.clients.tasks import Consume, Produce, Security
from tests.harness.kafka import KafkaCluster
from tests.harness.polling import wait_until
from tests.harness.sluice import SluiceProcess
from tests.integration.conftest import NODE_IDS, fresh_name
from tests.integration.test_shared_ports import RESOLVER, ZONE

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

NAMES = ("edge-1", "edge-2")
RECORDS = 600


class Instances:
    def __init__(self, cluster: KafkaCluster, folder: Path, stack: ExitStack) -> None:
        self.authority = Authority(folder)
        hosts = [f"b{node_id}-{name}.{ZONE}" for node_id in NODE_IDS for name in NAMES]
        server = self.authority.issue("sluice", common_name("sluice"), [*hosts, *(f"{name}.{ZONE}" for name in NAMES)])
        secret, group = folder / "secret", fresh_name("owners")
        secret.write_text("a secret of both instances")
        names = {
            "advertise": f"{{instance}}.{ZONE}",
            "broker_host": f"b{{node_id}}-{{instance}}.{ZONE}",
            "tls": {"certificate": str(server.certificate), "key": str(server.key)},
        }
        self.running: dict[str, SluiceProcess] = {}
        for name in NAMES:
            owners = {"instance": name, "group": group, "secret_file": str(secret), "heartbeat": "500ms"}
            settings = {"workers": 2, "owners": owners}
            instance = SluiceProcess(cluster.bootstrap, NODE_IDS, settings=settings, listeners={"NAMES": names})
            stack.callback(instance.close)
            instance.launch()
            self.running[name] = instance

    def bootstrap(self) -> str:
        ports = {name: each.listeners["NAMES"].address.port for name, each in self.running.items()}
        return ",".join(f"{name}.{ZONE}:{port}" for name, port in ports.items())

    def until_agreed(self) -> None:
        wait_until(self._agree, f"{', '.join(self.running)} own all brokers", 60.0)

    def _agree(self) -> bool:
        said = [each.get("/api/v1/owners") for each in self.running.values()]
        owners = [json.loads(text)["owners"] if status == 200 else {} for status, text in said]
        return all(
            {int(node_id) for node_id in each} == set(NODE_IDS) and set(each.values()) == set(self.running)
            for each in owners
        )


@pytest.fixture
def instances(cluster: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Instances]:
    with ExitStack() as stack:
        started = Instances(cluster, tmp_path, stack)
        started.until_agreed()
        (tmp_path / "sitecustomize.py").write_text(RESOLVER, encoding="utf-8")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # of clients, which are started from now on
        yield started


@pytest.mark.parametrize("kind", [KAFKA_PYTHON, AIOKAFKA], ids=lambda kind: kind.name)
def test_each_broker_is_at_its_owner_by_name(cluster: KafkaCluster, instances: Instances, kind: ClientKind) -> None:
    """Also when an owner is killed: its brokers have other names then."""
    security = Security(protocol="SSL", ca=str(instances.authority.certificate))

    def produce_and_consume() -> None:
        for leader in NODE_IDS:
            topic = fresh_name("named")
            cluster.create_topic(topic, leader=leader)
            place: dict[str, Any] = {
                "bootstrap": instances.bootstrap(),
                "client_id": "named",
                "topic": topic,
                "security": security,
            }
            with kind.run(Produce(**place, records=RECORDS)) as producer:
                assert producer.result().records == RECORDS
            with kind.run(Consume(**place, records=RECORDS)) as consumer:
                found = consumer.result()
            assert (found.records, found.corrupt) == (RECORDS, 0)

    produce_and_consume()
    for each in instances.running.values():
        assert sum(sample.value for sample in each.metrics().samples("sluice_connections_total", outcome="accepted"))
    instances.running.pop("edge-2").signal(signal.SIGKILL)
    instances.until_agreed()
    produce_and_consume()
