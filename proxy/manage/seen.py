"""What a target holds, read once; and what the configuration says beside it."""

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
    """End the command with ``status`` where quotas cannot be read or written, for commands whose 1 says something."""
    try:
        yield
    except (ConfigError, StoreError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(status)


@contextmanager
def opened(**target: Any) -> Iterator[tuple[QuotaStore, Loaded]]:
    """Give the store of a target and what it holds now, and close it afterwards. Raises as ``open_target``, and
    UnreadableError.
    """
    store = open_target(**target)
    try:
        yield store, store.load(now_ms())
    finally:
        store.close()


def seen(**target: Any) -> Loaded:
    """Return what the store of a target holds now. Raises likewise."""
    with opened(**target) as (_, loaded):
        return loaded


def settings_of(target: Mapping[str, Any]) -> Quotas | None:
    """Return what the configuration says of quotas; None where the target is none of a configuration's. Raises
    ConfigError.
    """
    if target.get("config_path") is None:
        return None
    from config.loader import load_with_document

    return load_with_document(target["config_path"])[0].quotas
