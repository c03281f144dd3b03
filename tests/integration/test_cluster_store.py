"""A proxy that enforces the quotas of its cluster: changed through it, and in force at once."""

from collections.abc import Iterator

import pytest

from config.units import Address
from proxy.brokers.persistent_connection import Access
from proxy.control.cluster_store import ClusterStore
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.stores.alteration import Alteration, Altered, Change, Outcome
from tests.harness.admin import set_client_quotas
from tests.harness.kafka import KafkaCluster
from tests.harness.polling import wait_until
from tests.harness.sluice import SluiceProcess
from tests.harness.wire import Address as Place

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

RATE = "producer_byte_rate"
CLIENT = "of-the-cluster"
SELDOM = {"quotas": {"store": {"type": "cluster", "poll": "1h"}}}
"""What is noticed is not noticed by asking every so often."""


@pytest.fixture(autouse=True)
def clean(cluster: KafkaCluster) -> Iterator[None]:
    yield
    set_client_quotas(cluster.nodes[0].direct, RATE, {CLIENT: None})


def store_of(cluster: KafkaCluster) -> ClusterStore:
    places = [Place.parse(each) for each in cluster.bootstrap.split(",")]
    return ClusterStore(Access(tuple(Address(each.host, each.port) for each in places)), poll_ms=3_600_000)


def test_quota_altered_through_the_proxy_is_in_force_at_once(cluster: KafkaCluster) -> None:
    with SluiceProcess(cluster.bootstrap, cluster.node_ids, settings=SELDOM) as sluice:

        def said() -> list[float | None]:
            changes = [line for line in sluice.logs() if line["event"] == "quota changed"]
            return [line["new"] for line in changes if CLIENT in str(line)]  # other tests set quotas too

        limits = (100_000.0, 200_000.0, None)
        for number, (node_id, limit) in enumerate(zip(cluster.node_ids, limits, strict=True), 1):
            set_client_quotas(sluice.broker_addresses[node_id], RATE, {CLIENT: limit})
            wait_until(lambda number=number: said() == [*limits[:number]], f"{limit} in force")  # type: ignore[misc]  # bound now
        assert CLIENT not in sluice.get("/api/v1/quotas?size=1000")[1]
        assert sluice.metrics().value("sluice_quota_staleness_seconds") == 0


def test_a_store_asks_and_changes_a_real_cluster(cluster: KafkaCluster) -> None:
    store = store_of(cluster)
    entity = Entity(client_id=CLIENT)
    try:
        for old, new in ((None, 5.0), (5.0, 7.0), (7.0, None)):
            loaded = store.load(0)
            change = Change({"client-id": CLIENT}, [(RATE, new)])
            [outcome] = store.alter(Alteration([change], "User:admin", version=loaded.version))
            assert outcome == Outcome(None, (Altered(entity, QuotaKind.PRODUCER_BYTE_RATE, old, new),))
            now = store.load(0).policy.limits
            assert now.get(entity, {}) == ({} if new is None else {QuotaKind.PRODUCER_BYTE_RATE: new})
    finally:
        store.close()
