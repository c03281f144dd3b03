"""A real ZooKeeper for a module, and a store in a corner of its own for a test that asks for one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.zookeeper import ZooKeeper
from tests.quotas.stores.zookeeper import ZooKeeperHarness


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeper]:
    with ZooKeeper() as running:
        yield running


@pytest.fixture
def store(server: ZooKeeper, request: pytest.FixtureRequest) -> Iterator[ZooKeeperHarness]:
    if server.program is None:
        server.start()
    harness = ZooKeeperHarness(server, f"/{abs(hash(request.node.nodeid)):x}")
    yield harness
    harness.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "quotas.yaml"
