"""The target of a command: the quotas of a configuration, a file, a ZooKeeper, or a running cluster or proxy."""

from pathlib import Path
from typing import Final

import click

from config.problems import InvalidValue
from config.stores import FileStore
from config.units import parse_reachable
from proxy.brokers.connection import BrokerConnection
from proxy.brokers.login import log_in
from proxy.brokers.persistent_connection import Access, access_by
from proxy.control.cluster_store import ClusterStore
from proxy.control.stores import open_quotas, open_store
from proxy.doctor.client import OF_CLIENT, ClientLogin, load_client
from proxy.doctor.credentials import ClientConfigError
from proxy.manage.options import Command, with_options
from proxy.manage.zookeeper_client import open_zookeeper
from proxy.runtime.clock import wall_s
from quotas.stores.base import QuotaStore

_POLL_MS: Final = 5_000


def target_options(command: Command) -> Command:
    """Add the options of ``open_target`` to a command; exactly one of them selects the target."""
    return with_options(
        command,
        click.option(
            "-c",
            "--config",
            "config_path",
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="The quotas of the store that this configuration file (sluice.yaml) names.",
        ),
        click.option(
            "--file", "quota_file", metavar="FILE", type=click.Path(path_type=Path), help="The quotas of a quota file."
        ),
        click.option(
            "--zookeeper", metavar="HOST:PORT[/CHROOT]", help="The quotas in the ZooKeeper of brokers up to 3.9."
        ),
        click.option(
            "--zookeeper-config",
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="How to connect there: zookeeper.ssl... as kafka-configs takes it; sasl.jaas.config to log in.",
        ),
        click.option(
            "--bootstrap-server",
            metavar="HOST:PORT",
            help="The quotas of a running cluster, or of a proxy at that address.",
        ),
        click.option(
            "--command-config",
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="How to connect there, as Kafka's own tools take it: security.protocol, sasl.jaas.config ...",
        ),
    )


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
        from config.loader import load_with_document

        return open_quotas(load_with_document(config_path)[0])
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
    credentials = client.credentials
    if credentials is None:
        return Access(addresses, lambda: client.context, fixes=OF_CLIENT)
    who = "the token's user" if credentials.username is None else f"user {credentials.username}"

    async def login(connection: BrokerConnection) -> None:
        await log_in(connection, credentials.mechanism, credentials.exchange(), who)

    return Access(addresses, lambda: client.context, login, credentials.username, OF_CLIENT)


def source_options(command: Command) -> Command:
    """Add the options of ``open_source`` to a command: a cluster or a ZooKeeper to import from."""
    return with_options(
        command,
        click.option(
            "--from",
            "source_kind",
            type=click.Choice(["cluster", "zookeeper"]),
            help="Take the quotas of a running cluster, or of the ZooKeeper of brokers up to 3.9.",
        ),
        click.option(
            "--from-address",
            "source_address",
            metavar="HOST:PORT[/CHROOT]",
            help="Address of that cluster or ZooKeeper. Default: the cluster of --config.",
        ),
        click.option(
            "--from-command-config",
            "source_config",
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="How to connect there: a file as for --command-config or --zookeeper-config.",
        ),
    )


def open_source(kind: str, address: str | None, config: Path | None, *, of: Path | None) -> QuotaStore:
    """Return the store to import from; ``of``: the configuration that names the cluster if there is no address.

    Raises click.UsageError, ConfigError.
    """
    if kind == "cluster" and address is None and of is not None and config is None:
        from config.loader import load_with_document

        return ClusterStore(access_by(load_with_document(of)[0].cluster), poll_ms=_POLL_MS)
    if address is None:
        default = ", or --config FILE for its cluster" if kind == "cluster" else ""
        raise click.UsageError(f"--from {kind} needs an address: give --from-address HOST:PORT{default}")
    if kind == "cluster":
        return open_target(bootstrap_server=address, command_config=config)
    return open_target(zookeeper=address, zookeeper_config=config)
