"""Opens and reads the store of a command's target, and the quota settings beside it."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from config.problems import ConfigError
from config.settings import Quotas
from proxy.manage.target import open_target
from proxy.runtime.clock import now_ms
from quotas.stores.base import Loaded, QuotaStore, StoreError


@contextmanager
def failing_with(status: int) -> Iterator[None]:
    """Exit with ``status`` if quotas cannot be read or written, for commands in which exit status 1 has a meaning."""
    try:
        yield
    except (ConfigError, StoreError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(status)


@contextmanager
def opened(**target: Any) -> Iterator[tuple[QuotaStore, Loaded]]:
    """Open the store of a target and load its quotas; close it at the end. Raises as ``open_target``, and
    UnreadableError.
    """
    store = open_target(**target)
    try:
        yield store, store.load(now_ms())
    finally:
        store.close()


def load_target(**target: Any) -> Loaded:
    """Return the quotas in a target's store. Raises as ``opened``."""
    with opened(**target) as (_, loaded):
        return loaded


def settings_of(target: Mapping[str, Any]) -> Quotas | None:
    """Return the quota settings of the target's configuration; None if it has none. Raises ConfigError."""
    if target.get("config_path") is None:
        return None
    from config.loader import load_with_document

    return load_with_document(target["config_path"])[0].quotas
