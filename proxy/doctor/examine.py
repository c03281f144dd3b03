"""Runs all checks: the configuration, the steps of a client, and the brokers."""

import asyncio
from dataclasses import replace
from pathlib import Path

from config.listener import Listener
from config.problems import InvalidValue
from config.settings import Settings
from config.units import EVERY_INTERFACE, Address, parse_reachable
from proxy.checks.health import context_of_others, login_of
from proxy.checks.report import check
from proxy.doctor.broker_checks import check_brokers, look_at_mechanisms, look_at_quotas
from proxy.doctor.client import ClientConfigError, ClientLogin, client_for, load_client
from proxy.doctor.client_checks import STEPS, ClientChecks
from proxy.doctor.findings import DoctorFindings
from proxy.doctor.owners import look_at_owners
from proxy.owners.map import owners_of
from proxy.runtime.clock import wall_s


def examine(
    config_path: Path, listener_name: str | None, command_config: Path | None, bootstrap: str | None
) -> DoctorFindings:
    """Run all checks; without a name at the only listener. ``bootstrap``: ``host:port`` instead of the address in the
    configuration or the client's file.

    Raises ValueError if the arguments do not match the configuration.
    """
    found = DoctorFindings()
    settings = _configuration(found, config_path)
    if settings is None:
        return found
    listener = _choose(settings.listeners, listener_name)
    client = _client(found, listener, command_config)
    place = _bootstrap(found, listener, bootstrap, client)
    asyncio.run(_connect(found, settings, listener, client, place))
    return found


async def _connect(
    found: DoctorFindings, settings: Settings, listener: Listener, client: ClientLogin | None, place: Address | None
) -> None:
    route, demands_sasl = listener.cluster or settings.cluster, listener.authentication == "sasl"
    brokers = await check_brokers(found, route, demands_sasl=demands_sasl)
    if brokers.reached and demands_sasl:
        await look_at_mechanisms(found, listener, route)
    if brokers.reached:
        await look_at_quotas(found, settings, route)
    if client is None or place is None:
        found.not_tried("client", "tcp", *STEPS)
        return
    bind = settings.admin.bind
    # An admin port on every interface is reachable at the clients' address too.
    admin = Address(place.host if bind.host in EVERY_INTERFACE else bind.host, bind.port)
    owners = None if settings.owners is None else owners_of(settings.owners)
    login = login_of(settings.admin)
    await ClientChecks(found, listener, place, admin, client, brokers, wall_s(), owners, login).examine()
    if settings.owners is not None and settings.owners.group is not None:
        await look_at_owners(found, str(admin), login, context_of_others(settings.admin))


def _configuration(found: DoctorFindings, path: Path) -> Settings | None:
    report = check(path, wall_s())
    for problem in report.problems:
        fix = problem.hint or ("correct it" if problem.line else "name the file with --config")
        found.fail("config", str(replace(problem, hint="")), fix)
    if not report.problems:
        count = len(report.warnings)
        told = f", and `sluice check` reports {count} warning{'' if count == 1 else 's'}" if count else ""
        found.ok("config", f"{path} can be used{told}")
    return report.settings


def _choose(listeners: tuple[Listener, ...], name: str | None) -> Listener:
    if name is None and len(listeners) == 1:
        return listeners[0]
    for listener in listeners:
        if listener.name == name:
            return listener
    said = "there are several listeners" if name is None else f"there is no listener {name}"
    raise ValueError(f"{said}: give --listener with one of {', '.join(listener.name for listener in listeners)}")


def _client(found: DoctorFindings, listener: Listener, path: Path | None) -> ClientLogin | None:
    if path is None:
        return client_for(listener)
    try:
        client = load_client(path, wall_s())
    except ClientConfigError as error:
        said, _, fix = str(error).partition(": ")
        found.fail("client", said, fix or f"correct it in {path}")
        return None
    found.ok("client", f"{path}: security.protocol is {client.protocol}")
    if client.ignored:
        found.warn("client", f"ignored by the doctor: {', '.join(client.ignored)}", "is each spelled correctly?")
    return client


def _bootstrap(
    found: DoctorFindings, listener: Listener, given: str | None, client: ClientLogin | None
) -> Address | None:
    """Return the address to connect to; None, and report it, if the client's file has an invalid one."""
    of_client = None if client is None else client.bootstrap
    try:
        if given is not None:
            return parse_reachable(given.split(",")[0])  # as in Kafka's tools, one address is enough
        return listener.bootstrap if of_client is None else parse_reachable(of_client)
    except InvalidValue as error:
        if given is not None:
            raise ValueError(f"--bootstrap {error}; {error.hint}") from None
        found.fail("client", f"bootstrap.servers: {error}", error.hint)
        return None
