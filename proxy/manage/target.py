"""Which quotas a command is about: those of a configuration, a file, a ZooKeeper, or a running cluster or proxy."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from config.stores import FileStore, ZooKeeperStore
from proxy.control.stores import open_store
from quotas.stores.base import QuotaStore

_Command = TypeVar("_Command", bound=Callable[..., Any])


def target_options(command: _Command) -> _Command:
    """Give a command the options that ``open_target`` takes: exactly one of them says which quotas it is about."""
    for option in reversed(
        (
            click.option(
                "-c",
                "--config",
                "config_path",
                metavar="FILE",
                type=click.Path(path_type=Path),
                help="The quotas of the store that this configuration file (sluice.yaml) names.",
            ),
            click.option(
                "--file", "quota_file", metavar="FILE", type=click.Path(path_type=Path), help="Those of a quota file."
            ),
            click.option(
                "--zookeeper", metavar="HOST:PORT[/CHROOT]", help="Those in the ZooKeeper of brokers up to 3.9."
            ),
        )
    ):
        command = option(command)
    return command


def open_target(
    *, config_path: Path | None = None, quota_file: Path | None = None, zookeeper: str | None = None
) -> QuotaStore:
    """Return the store, to be closed by the caller. Raises click.UsageError, ConfigError."""
    given = [each for each in (config_path, quota_file, zookeeper) if each is not None]
    if len(given) != 1:
        raise click.UsageError("give one of --config, --file and --zookeeper")
    if config_path is not None:
        from config.loader import load_with_document

        return open_store(load_with_document(config_path)[0].quotas.store)
    if quota_file is not None:
        return open_store(FileStore(path=quota_file))
    return open_store(ZooKeeperStore(connect=str(zookeeper)))
