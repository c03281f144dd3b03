"""The whole examination: the configuration, the way of a client, and the brokers behind."""

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

from config.listener import Listener
from config.loader import load_settings
from config.problems import ConfigError, InvalidValue
from config.settings import Settings
from config.units import EVERY_INTERFACE, Address, parse_reachable
from proxy.checks.report import check
from proxy.doctor.behind import Behind, look_behind
from proxy.doctor.client import Client, client_for, load_client
from proxy.doctor.credentials import ClientConfigError
from proxy.doctor.findings import DoctorFindings
from proxy.doctor.front import BEHIND_TLS, Front
from proxy.doctor.mechanisms import look_at_mechanisms
from proxy.doctor.quotas import look_at_quotas
from proxy.runtime.clock import wall_s


@dataclass(frozen=True, slots=True)
class Examination:
    """What the command line asks for."""

    config_path: Path
    listener: str | None = None
    """Its name; None: the only one there is."""
    command_config: Path | None = None
    bootstrap: str | None = None
    """``host:port`` instead of the address that the configuration or the client's file names."""


def examine(wanted: Examination) -> DoctorFindings:
    """Look at everything that is asked for. Raises ValueError for a command line that fits no configuration."""
    found = DoctorFindings()
    settings = _configuration(found, wanted.config_path)
    if settings is None:
        return found
    listener = _choose(settings.listeners, wanted.listener)
    client = _client(found, listener, wanted.command_config)
    place = _bootstrap(found, listener, wanted.bootstrap, client)
    asyncio.run(_connect(found, settings, listener, client, place))
    return found


async def _connect(
    found: DoctorFindings, settings: Settings, listener: Listener, client: Client | None, place: Address | None
) -> None:
    async def look() -> Behind:
        route, demands_sasl = listener.cluster or settings.cluster, listener.authentication == "sasl"
        behind = await look_behind(found, route, demands_sasl=demands_sasl)
        if behind.reached and demands_sasl:
            await look_at_mechanisms(found, listener, route)
        if behind.reached:
            await look_at_quotas(found, settings, route)
        return behind

    if client is None or place is None:
        found.not_tried("client", "tcp", "tls")
        await look()
        found.not_tried("client", *BEHIND_TLS)
        return
    bind = settings.admin.bind
    # On every interface it is on the one that clients use, too.
    admin = Address(place.host if bind.host in EVERY_INTERFACE else bind.host, bind.port)
    await Front(found, listener, place, f"http://{admin}", client, wall_s()).examine(look)


def _configuration(found: DoctorFindings, path: Path) -> Settings | None:
    report = check(path, wall_s())
    for problem in report.problems:
        fix = problem.hint or ("correct it" if problem.line else "name the file with --config")
        found.fail("config", str(replace(problem, hint="")), fix)
    try:
        settings = load_settings(path)
    except ConfigError:
        return None
    if not report.problems:
        told = f", and `sluice check` warns of {len(report.warnings)} things" if report.warnings else ""
        found.ok("config", f"{path} can be used{told}")
    return settings


def _choose(listeners: tuple[Listener, ...], name: str | None) -> Listener:
    if name is None and len(listeners) == 1:
        return listeners[0]
    for listener in listeners:
        if listener.name == name:
            return listener
    said = "there are several listeners" if name is None else f"there is no listener {name}"
    raise ValueError(f"{said}: give --listener with one of {', '.join(listener.name for listener in listeners)}")


def _client(found: DoctorFindings, listener: Listener, path: Path | None) -> Client | None:
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
        found.warn("client", f"says nothing to the doctor: {', '.join(client.ignored)}", "is each spelled right?")
    return client


def _bootstrap(found: DoctorFindings, listener: Listener, given: str | None, client: Client | None) -> Address | None:
    """Return where to connect; None, and it is told, where the client's file says nothing that could be used."""
    try:
        if given is not None:
            return parse_reachable(given.split(",")[0])  # as Kafka's tools take it: one that leads to the others
    except InvalidValue as error:
        raise ValueError(f"--bootstrap {error}; {error.hint}") from None
    try:
        if client is not None and client.bootstrap is not None:
            return parse_reachable(client.bootstrap)
    except InvalidValue as error:
        found.fail("client", f"bootstrap.servers: {error}", error.hint)
        return None
    return listener.bootstrap
