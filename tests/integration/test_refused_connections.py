"""What clients do whose address connects too often: each library, unchanged, gets in later and loses nothing."""

from contextlib import ExitStack
from typing import Final

import pytest

from tests.harness.clients.kinds import KINDS
from tests.harness.clients.tasks import Produce
from tests.harness.kafka import KafkaCluster
from tests.harness.sluice import SluiceProcess
from tests.integration.conftest import fresh_name

SAMPLES: Final = 3
LIMIT_PER_S: Final = 2
"""All clients come from one address: four connections at once, and then two a second."""
RECORDS: Final = 200
READY_S: Final = 120.0


@pytest.mark.matrix
@pytest.mark.timeout(300)
def test_clients_refused_for_connection_rate_reconnect_and_lose_nothing(cluster: KafkaCluster) -> None:
    quotas = f"quotas: [{{entity: {{ip: 127.0.0.1}}, connection_creation_rate: {LIMIT_PER_S}}}]"
    settings = {"quotas": {"window": {"samples": SAMPLES, "size": "1s"}}}
    topic = fresh_name("refused")
    cluster.create_topic(topic, partitions=len(cluster.node_ids))
    proxy = SluiceProcess(cluster.bootstrap, cluster.node_ids, quotas=quotas, settings=settings)
    with proxy as sluice, ExitStack() as stack:
        clients = {}
        for kind in KINDS:
            task = Produce(bootstrap=sluice.bootstrap, client_id=kind.name, topic=topic, records=RECORDS)
            clients[kind.name] = stack.enter_context(kind.run(task))
        results = {name: client.result(READY_S) for name, client in clients.items()}
        refused = sluice.metrics().value("sluice_frames_rejected_total", cause="connection_rate_per_ip")
    for name, result in results.items():
        print(f"{name}: {result.records} of {RECORDS} records, {len(result.errors)} errors {result.errors[:2]}")
    print(f"{refused:.0f} connections refused")
    assert refused > 0
    assert {name: result.errors for name, result in results.items() if result.errors} == {}
    assert {result.records for result in results.values()} == {RECORDS}
