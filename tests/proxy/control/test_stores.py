"""Every store that can be configured can be opened."""

from pathlib import Path

from config.cluster import Route
from config.stores import STORES as DESCRIBED
from config.stores import ClusterStore as ClusterSettings
from config.stores import FileStore as FileSettings
from config.stores import ZooKeeperStore as ZooKeeperSettings
from config.units import Address
from proxy.control.cluster_store import ClusterStore
from proxy.control.stores import STORES, open_store
from quotas.stores.file_store import FileStore
from quotas.stores.zookeeper.store import ZooKeeperStore


def test_every_store_that_can_be_configured_can_be_opened(tmp_path: Path) -> None:
    assert STORES.keys() == DESCRIBED.keys()
    assert all(model.model_fields["type"].default == name for name, model in DESCRIBED.items())
    assert isinstance(open_store(FileSettings(path=tmp_path / "quotas.yaml")), FileStore)
    assert isinstance(open_store(ZooKeeperSettings(connect="z:2181")), ZooKeeperStore)
    route = Route(bootstrap=(Address("b", 9092),))
    assert isinstance(open_store(ClusterSettings(), route), ClusterStore)
