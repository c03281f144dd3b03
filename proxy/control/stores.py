"""The registry of quota stores by ``quotas.store.type``; no other module names a store type."""

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, Final

from config.cluster import Route
from config.settings import Quotas, Settings
from config.stores import Store
from quotas.stores.base import Loaded, QuotaStore
from quotas.stores.file_store import FileStore
from quotas.stores.layers import LayeredStore


def _zookeeper(settings: Any, _: Route | None) -> QuotaStore:
    from quotas.stores.zookeeper.store import ZooKeeperStore

    return ZooKeeperStore(settings)


def _cluster(settings: Any, cluster: Route | None) -> QuotaStore:
    from proxy.brokers.persistent_connection import access_by
    from proxy.control.cluster_store import ClusterStore

    if cluster is None:
        raise ValueError("the store of a cluster needs to know which")
    return ClusterStore(access_by(cluster), poll_ms=settings.poll_ms)


STORES: Final[Mapping[str, Callable[[Any, Route | None], QuotaStore]]] = {
    "file": lambda settings, _: FileStore(settings.path),
    "zookeeper": _zookeeper,
    "cluster": _cluster,
}


def open_store(store: Store, cluster: Route | None = None) -> QuotaStore:
    """Return a store; ``cluster`` is the one behind the proxy. Reads no quotas yet."""
    return STORES[store.type](store, cluster)


def open_quotas(settings: Settings) -> QuotaStore:
    """Return the store of a configuration's quotas. Reads no quotas yet."""
    layers = [open_store(store, settings.cluster) for store in settings.quotas.layers]
    return layers[0] if len(layers) == 1 else LayeredStore(layers)


def open_static(quotas: Quotas) -> QuotaStore | None:
    """Return the store of the quotas in force while the other one is unavailable at startup, if there is one."""
    return None if quotas.static is None else FileStore(quotas.static)


def load_quotas(settings: Settings) -> Loaded:
    """Return the quotas in a configuration's stores, read once. Raises UnreadableError."""
    with closing(open_quotas(settings)) as store:
        return store.load(0)
