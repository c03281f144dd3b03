"""The target of a command: the quotas of a configuration, a file, a ZooKeeper, or a running cluster or proxy."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from config.loader import load_settings
from config.problems import ConfigError, InvalidValue, Problem
from config.settings import FileStore, Quotas
from config.units import parse_reachable
from proxy.brokers.persistent_connection import Access, access_by
from proxy.control.cluster_store import ClusterStore
from proxy.control.stores import open_quotas, open_store
from proxy.doctor.client import OF_CLIENT, ClientConfigError, ClientLogin, load_client
from proxy.live.options import Command, file_option, with_options
from proxy.manage.zookeeper_client import open_zookeeper
from proxy.runtime.clock import now_ms, wall_s
from quotas.entities import Entity
from quotas.stores.base import Loaded, QuotaStore, StoreError

EXIT_FAILED: Final = 1
EXIT_CONFIG: Final = 2
_POLL_MS: Final = 5_000


class StoreCommand(click.Command):
    """A command that prints a ConfigError or StoreError in a line, and exits."""

    store_status: int = EXIT_FAILED
    """Exit status of a StoreError."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (ConfigError, StoreError) as error:
            click.echo(f"error: {error}", err=True)
            sys.exit(EXIT_CONFIG if isinstance(error, ConfigError) else self.store_status)


class AnsweringCommand(StoreCommand):
    """A StoreCommand whose exit status 1 is an answer."""

    store_status = EXIT_CONFIG


target_options: Callable[[Command], Command] = with_options(
    file_option(
        "-c",
        "--config",
        "config_path",
        help_text="The quotas of the store that this configuration file (sluice.yaml) names.",
    ),
    file_option("--file", "quota_file", help_text="The quotas of a quota file."),
    click.option("--zookeeper", metavar="HOST:PORT[/CHROOT]", help="The quotas in the ZooKeeper of brokers up to 3.9."),
    file_option(
        "--zookeeper-config",
        help_text="How to connect there: zookeeper.ssl... as kafka-configs takes it; sasl.jaas.config to log in.",
    ),
    click.option(
        "--bootstrap-server",
        metavar="HOST:PORT",
        help="The quotas of a running cluster, or of a proxy at that address.",
    ),
    file_option(
        "--command-config",
        help_text="How to connect there, as Kafka's own tools take it: security.protocol, sasl.jaas.config ...",
    ),
)
"""The options of ``open_target``; exactly one of them selects the target."""


def open_target(
    *,
    config_path: Path | None = None,
    quota_file: Path | None = None,
    zookeeper: str | None = None,
    zookeeper_config: Path | None = None,
    bootstrap_server: str | None = None,
    command_config: Path | None = None,
) -> QuotaStore:
    """Return the store, to be closed by the caller. Raises click.UsageError, ConfigError."""
    given = [each for each in (config_path, quota_file, zookeeper, bootstrap_server) if each is not None]
    if len(given) != 1:
        raise click.UsageError("give one of --config, --file, --zookeeper and --bootstrap-server")
    if command_config is not None and bootstrap_server is None:
        raise click.UsageError("--command-config is for --bootstrap-server")
    if zookeeper_config is not None and zookeeper is None:
        raise click.UsageError("--zookeeper-config is for --zookeeper")
    if config_path is not None:
        return open_quotas(load_settings(config_path))
    if quota_file is not None:
        return open_store(FileStore(path=quota_file))
    if bootstrap_server is not None:
        return ClusterStore(access_to(bootstrap_server, command_config), poll_ms=_POLL_MS)
    return open_zookeeper(str(zookeeper), zookeeper_config)


def access_to(bootstrap_server: str, command_config: Path | None) -> Access:
    """Return how to connect to a cluster with a file for --command-config. Raises click.UsageError."""
    try:
        addresses = tuple(parse_reachable(each.strip()) for each in bootstrap_server.split(","))
    except InvalidValue as error:
        raise click.UsageError(f"--bootstrap-server {error}; {error.hint}") from None
    try:
        client = ClientLogin("PLAINTEXT") if command_config is None else load_client(command_config, wall_s())
    except ClientConfigError as error:
        raise click.UsageError(f"--command-config: {error}") from None
    login = client.credentials
    if login is None:
        return Access(addresses, lambda: client.context, fixes=OF_CLIENT)
    return Access(addresses, lambda: client.context, login.log_in, login.username, OF_CLIENT)


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


def place_of(loaded: Loaded, entity: Entity) -> str:
    """Return where a rule is defined; "" if the store does not say."""
    return loaded.where(entity) if entity in loaded.places else ""


def warn(problems: Iterable[Problem]) -> None:
    """Print problems that do not keep a command from going on."""
    for problem in problems:
        click.echo(f"warning: {problem}", err=True)


def settings_of(target: Mapping[str, Any]) -> Quotas | None:
    """Return the quota settings of the target's configuration; None if it has none. Raises ConfigError."""
    return None if target["config_path"] is None else load_settings(target["config_path"]).quotas


def open_source(kind: str, address: str | None, config: Path | None, *, of: Path | None) -> QuotaStore:
    """Return the store to import from; ``of``: the configuration that names the cluster if there is no address.

    Raises click.UsageError, ConfigError.
    """
    if kind == "cluster" and address is None and of is not None and config is None:
        return ClusterStore(access_by(load_settings(of).cluster), poll_ms=_POLL_MS)
    if address is None:
        default = ", or --config FILE for its cluster" if kind == "cluster" else ""
        raise click.UsageError(f"--from {kind} needs an address: give --from-address HOST:PORT{default}")
    if kind == "cluster":
        return open_target(bootstrap_server=address, command_config=config)
    return open_target(zookeeper=address, zookeeper_config=config)
