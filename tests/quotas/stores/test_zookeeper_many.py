"""Very many quotas in a real ZooKeeper, and an old server. Times are printed, and not judged: docs/benchmarks.md."""

import time
from collections.abc import Iterator

import pytest

from config.stores import ZooKeeperStore as Settings
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.stores.zookeeper.store import ZooKeeperStore
from quotas.stores.zookeeper.tree import node_of, path_of
from tests.harness.jars import LAST_ON_ZOOKEEPER, ZOOKEEPER_TOOLS
from tests.harness.zookeeper import ZooKeeper
from tests.quotas.stores.zookeeper import ZooKeeperHarness

pytestmark = [pytest.mark.integration, pytest.mark.matrix, pytest.mark.timeout(300)]

RATE = QuotaKind.PRODUCER_BYTE_RATE
COUNT = 50_000
WRITTEN_AT_ONCE = 500
SCRAM = "salt=MWwxaXBvZXlwd2J0ZTd2dGg3MjIyczV1ZG0=,stored_key=7Nw+,server_key=FjUj,iterations=4096"


@pytest.fixture(params=[LAST_ON_ZOOKEEPER, ZOOKEEPER_TOOLS], ids=["3.8", "3.5"])
def many(request: pytest.FixtureRequest) -> Iterator[ZooKeeperHarness]:
    """Two fifths of users, as many of client-ids, a fifth of pairs."""
    with ZooKeeper(of_kafka=request.param) as server:
        harness = ZooKeeperHarness(server, "/many")
        for start in range(0, COUNT, WRITTEN_AT_ONCE):
            transaction = harness.client.transaction()
            for entity in map(_entity, range(start, start + WRITTEN_AT_ONCE)):
                path = f"{harness.chroot}{path_of(entity)}"
                if entity.user is not None and entity.client_id is not None:
                    transaction.create(path.rpartition("/")[0])
                transaction.create(path, node_of({RATE.value: "1"}))
            assert all(isinstance(result, str) for result in transaction.commit())
        yield harness
        harness.store.close()
        harness.client.stop()
        harness.client.close()


def test_fifty_thousand_quotas_are_loaded_and_one_change_read(
    many: ZooKeeperHarness, request: pytest.FixtureRequest
) -> None:
    store = ZooKeeperStore(Settings(connect=f"{many.server.connect}{many.chroot}"))
    try:
        for what in ("first load", "load again"):
            began_s, cpu_s = time.monotonic(), time.process_time()
            limits = store.load(0).policy.limits
            print(
                f"{COUNT} quotas, {request.node.callspec.id}, {what}: "
                f"{time.monotonic() - began_s:.2f} s, {time.process_time() - cpu_s:.2f} s of CPU"
            )
            assert limits == {_entity(number): {RATE: 1.0} for number in range(COUNT)}
        many.write(path_of(_entity(7)), {"version": 1, "config": {"producer_byte_rate": "2", "SCRAM-SHA-256": SCRAM}})
        for _ in range(500):
            if store.changed():
                break
            many.pause()
        began_s = time.monotonic()
        assert store.load(0).policy.limits[_entity(7)] == {RATE: 2.0}
        print(f"one change: {time.monotonic() - began_s:.2f} s")
    finally:
        store.close()


def _entity(number: int) -> Entity:
    match number % 5:
        case 0 | 1:
            return Entity(user=f"user {number}")
        case 2 | 3:
            return Entity(client_id=f"client-{number}")
        case _:
            return Entity(f"user {number - 4}", f"client-{number}")
