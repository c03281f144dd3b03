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


def source_options(command: _Command) -> _Command:
    """Give a command the options of a second store, to take quotas from: as ``target_options``, behind ``--from-``."""
    for option in reversed(_target.params):
        flag = next(each for each in option.opts if each.startswith("--"))
        command = click.option(
            f"--from-{flag.removeprefix('--')}",
            f"from_{option.name}",
            metavar=option.metavar,
            type=option.type,
            help=f"Take quotas from there, as --{flag.removeprefix('--')} names it.",
        )(command)
    return command


def open_source(options: dict[str, Any]) -> QuotaStore | None:
    """Take the options of ``source_options`` out of ``options``; return the store that they name, if any."""
    given = {str(option.name): options.pop(f"from_{option.name}") for option in _target.params}
    return open_target(**given) if any(each is not None for each in given.values()) else None


@click.command()
@target_options
def _target(**given: Any) -> None:
    raise AssertionError(given)  # its options alone are wanted
