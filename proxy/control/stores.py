"""The stores of quotas, by the name that ``quotas.store.type`` has for each: the only place that knows one by name."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from config.stores import FileStore as FileStoreSettings
from config.stores import Store
from quotas.stores.base import QuotaStore
from quotas.stores.file_store import FileStore


def _file(settings: FileStoreSettings) -> QuotaStore:
    return FileStore(settings.path)


def _zookeeper(settings: Any) -> QuotaStore:
    from quotas.stores.zookeeper.store import ZooKeeperStore

    return ZooKeeperStore(settings)


STORES: Final[Mapping[str, Callable[[Any], QuotaStore]]] = {"file": _file, "zookeeper": _zookeeper}


def open_store(settings: Store) -> QuotaStore:
    """Return the store that ``settings`` describe. Nothing is read yet."""
    return STORES[settings.type](settings)
