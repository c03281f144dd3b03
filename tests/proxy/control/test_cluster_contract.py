"""The contract of all stores, kept by the cluster store on a real broker."""

from collections.abc import Iterator, Mapping

import pytest

from quotas.entities import Entity
from quotas.kinds import QuotaKind
from tests.harness.gate import Gate
from tests.harness.kafka import KafkaCluster
from tests.proxy.control.cluster import ClusterHarness
from tests.quotas.stores.alter_contract import AlterContract
from tests.quotas.stores.contract import NO_QUOTAS, Harness, StoreContract

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(600)]

RATE = QuotaKind.PRODUCER_BYTE_RATE
NOT_TAKEN = "a broker takes nothing that is no quota"


@pytest.fixture(scope="module")
def broker() -> Iterator[tuple[KafkaCluster, Gate]]:
    with KafkaCluster() as cluster:
        endpoint = cluster.nodes[0].endpoints["PLAIN"]
        with Gate(endpoint.guarded, endpoint.guarded_listener) as gate:
            yield cluster, gate


@pytest.fixture
def store(broker: tuple[KafkaCluster, Gate]) -> Iterator[ClusterHarness]:
    harness = ClusterHarness(*broker)
    yield harness
    harness.close()


class TestContract(StoreContract):
    @pytest.mark.skip(reason=NOT_TAKEN)
    @pytest.mark.parametrize(("entity", "name", "value"), NO_QUOTAS)
    def test_invalid_quota_is_refused_on_load(
        self, store: Harness, entity: Mapping[str, str], name: str, value: str
    ) -> None:
        raise NotImplementedError

    def test_change_that_cannot_be_loaded_is_noticed_once(self, store: Harness) -> None:
        """Here it is a broker that is away, and its end is noticed."""
        store.put({Entity(user="a"): {RATE: 1.0}})
        store.load()
        store.take_away()
        assert store.noticed()
        with pytest.raises(Exception, match="Connection refused"):
            store.load()
        assert not store.noticed()
        store.put({Entity(user="a"): {RATE: 1.0}})
        assert any(store.noticed() for _ in range(5))
        assert store.load().limits == {Entity(user="a"): {RATE: 1.0}}


class TestAlter(AlterContract):
    @pytest.mark.skip(reason=NOT_TAKEN)
    def test_a_store_that_cannot_be_read_is_not_written(self, store: Harness) -> None:
        raise NotImplementedError
