"""The stores of quotas, by the name that ``quotas.store.type`` has for each: the only place that knows one by name."""

from collections.abc import Callable, Mapping
from typing import Final

from config.settings import FileStore as FileStoreSettings
from quotas.stores.base import QuotaStore
from quotas.stores.file_store import FileStore

STORES: Final[Mapping[str, Callable[[FileStoreSettings], QuotaStore]]] = {
    "file": lambda settings: FileStore(settings.path),
}


def open_store(settings: FileStoreSettings) -> QuotaStore:
    """Return the store that ``settings`` describe. Nothing is read yet."""
    return STORES[settings.type](settings)
