"""The stores of quotas, by the name that ``quotas.store.type`` has for each: the only place that knows one by name."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from config.cluster import Route
from config.settings import Settings
from config.stores import FileStore as FileStoreSettings
from config.stores import Store
from quotas.stores.base import QuotaStore
from quotas.stores.file_store import FileStore


def _file(settings: FileStoreSettings, _: Route | None) -> QuotaStore:
    return FileStore(settings.path)


def _zookeeper(settings: Any, _: Route | None) -> QuotaStore:
    from quotas.stores.zookeeper.store import ZooKeeperStore

    return ZooKeeperStore(settings)


def _cluster(settings: Any, cluster: Route | None) -> QuotaStore:
    from proxy.brokers.kept_connection import access_by
    from proxy.control.cluster_store import ClusterStore

    if cluster is None:
        raise ValueError("the store of a cluster needs to know which")
    return ClusterStore(access_by(cluster), poll_ms=settings.poll_ms)


STORES: Final[Mapping[str, Callable[[Any, Route | None], QuotaStore]]] = {
    "file": _file,
    "zookeeper": _zookeeper,
    "cluster": _cluster,
}


def open_store(store: Store, cluster: Route | None = None) -> QuotaStore:
    """Return the store that is described; ``cluster`` is the one behind the proxy. Nothing is read yet."""
    return STORES[store.type](store, cluster)


def open_quotas(settings: Settings) -> QuotaStore:
    """Return what holds the quotas of a configuration. Nothing is read yet."""
    return open_store(settings.quotas.store, settings.cluster)
