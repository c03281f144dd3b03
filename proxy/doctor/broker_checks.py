"""Checks the brokers behind the proxy, with the proxy's own settings, from the doctor's machine.

Whether each answers and is of the cluster, which SASL mechanisms they offer, and which quotas they enforce themselves.
"""

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from config.cluster import Route
from config.listener import Listener
from config.settings import FileStore, Settings
from config.units import Address
from protocol.answers import read_handshake
from protocol.client_quotas import Describing, describe_request, read_described
from protocol.errors import ProtocolError
from protocol.requests import sasl_handshake
from proxy.brokers import cluster_quotas
from proxy.brokers.connection import connect
from proxy.brokers.failures import describe
from proxy.brokers.login import BrokerLogin, LoginError
from proxy.brokers.metadata import Metadata, host_of
from proxy.brokers.persistent_connection import PersistentConnection, UnansweredError, access_by
from proxy.brokers.tls import broker_context
from proxy.brokers.verification import ERRORS
from proxy.checks import double_enforcement
from proxy.checks.brokers import TIMEOUT_S, ask_broker
from proxy.checks.report import load_files
from proxy.doctor.findings import DoctorFindings
from proxy.identity.mechanisms.registry import NAMING
from proxy.identity.principal import of_mechanism
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.stores.base import UnreadableError

_QUOTAS_TIMEOUT_S: Final = 10.0
_NONE_SUCH: Final = "-"
"""A mechanism that no broker has: it is refused with the list of supported ones."""


@dataclass(frozen=True, slots=True)
class BrokerState:
    """The state of the brokers, which may explain failures at the proxy."""

    reached: bool
    """At least one broker answered."""
    silent: frozenset[int] = frozenset()
    """Node ids of known brokers that did not answer."""


async def check_brokers(found: DoctorFindings, route: Route, *, demands_sasl: bool) -> BrokerState:
    """Ask each bootstrap broker for Metadata, with the proxy's login, and every broker in it who it is."""
    try:
        context = broker_context(route.tls) if route.tls is not None else None
    except OSError as error:
        found.fail("brokers", str(error), "write that file")
        return BrokerState(reached=False)
    login = BrokerLogin(route.sasl) if route.sasl is not None else None
    blind = login is None and demands_sasl
    told: dict[Address, Metadata | None] = {}
    for address in route.bootstrap:
        told[address] = await _ask(found, f"bootstrap broker {address}", address, context, login, blind=blind)
    reached = any(said is not None for said in told.values())
    first = next((said for said in told.values() if said is not None and said.cluster_id), Metadata("", ()))
    for address, said in told.items():
        if said is not None and said.cluster_id != first.cluster_id:
            what = f"bootstrap broker {address} belongs to cluster {said.cluster_id}, the first one"
            fix = "make bootstrap name the brokers of one cluster"
            found.fail("brokers", f"{what} to {first.cluster_id}", fix)
    silent, fix = [], "give the address back to its broker"
    for endpoint in sorted(first.brokers):
        address = Address(host_of(endpoint), endpoint.port)
        broker = f"broker {endpoint.node_id} at {address}"
        if address not in told:
            told[address] = await _ask(found, broker, address, context, login, blind=blind)
        said = told[address]
        if said is None:
            silent.append(endpoint.node_id)
        elif said.cluster_id != first.cluster_id:
            found.fail("brokers", f"{broker} belongs to cluster {said.cluster_id}", fix)
        elif said.at(address.host, address.port) != (endpoint.node_id,):
            found.fail("brokers", f"{broker} is another broker of the cluster", fix)
    if blind:
        fix = "set cluster.sasl or cluster.state: without either, the proxy knows brokers only from clients' Metadata"
        found.warn("brokers", "they demand SASL, and the proxy has no login to ask them for their addresses", fix)
    return BrokerState(reached, frozenset(silent))


async def _ask(
    found: DoctorFindings,
    broker: str,
    address: Address,
    context: ssl.SSLContext | None,
    login: BrokerLogin | None,
    *,
    blind: bool,
) -> Metadata | None:
    """Ask one broker for the others; ``blind``: only whether it answers. None: it did not answer."""
    try:
        said = await ask_broker(address, context, login, blind=blind)
    except LoginError as error:
        found.fail("brokers", f"{broker} {error}", "compare cluster.sasl with the brokers' users")
    except ERRORS as error:
        found.broken("brokers", broker, describe(error), "is it up, and reached from here as the settings say?")
    else:
        names = ", ".join(str(endpoint.node_id) for endpoint in sorted(said.brokers))
        found.ok("brokers", f"{broker} answers" if blind else f"{broker} answers: the cluster has brokers {names}")
        return said
    return None


async def look_at_mechanisms(found: DoctorFindings, listener: Listener, route: Route) -> None:
    """Warn of mechanisms whose clients share one counter. Brokers that do not list their mechanisms are skipped."""
    for mechanism in await _offered(route):
        if mechanism in NAMING or (mechanism == "GSSAPI" and listener.sasl.kerberos is not None):
            continue
        own = f"set quotas for {of_mechanism(mechanism)}, or use another"
        message = (
            f"they offer {mechanism}, which does not show who a client is: all of them share one counter, and a quota "
            "of the default user limits them all together"
        )
        found.warn("brokers", message, "set sasl.kerberos" if mechanism == "GSSAPI" else own)


async def _offered(route: Route) -> list[str]:
    context = broker_context(route.tls) if route.tls is not None else None
    for address in route.bootstrap:
        try:
            async with asyncio.timeout(TIMEOUT_S), connect(address.host, address.port, context) as connection:
                return read_handshake(await connection.ask(sasl_handshake(_NONE_SUCH))).mechanisms
        except ERRORS:
            continue
    return []


async def look_at_quotas(found: DoctorFindings, settings: Settings, route: Route) -> None:
    """Report quotas that brokers enforce on traffic of the proxy, if there are any."""
    asking = PersistentConnection(access_by(route))
    try:
        async with asyncio.timeout(_QUOTAS_TIMEOUT_S):
            answer = read_described(await asking.ask(describe_request(Describing())))
    except (UnansweredError, TimeoutError, ProtocolError):
        return  # reported by the checks of brokers
    finally:
        await asking.close()
    if answer.error_code:
        fix = "let the proxy's user describe the configuration of the cluster"
        found.warn("quotas", f"the brokers refuse to describe their quotas (error {answer.error_code})", fix)
        return
    brokers = cluster_quotas.read(answer.entries, "brokers").policy
    problems = double_enforcement.of_address(brokers, "brokers")
    if route.tls is not None and route.tls.certificate is not None and route.sasl is None:
        problems += double_enforcement.of_one_user(brokers)
    if settings.quotas.mode == "enforce":
        ours: Mapping[Entity, Mapping[QuotaKind, float]] = brokers.limits
        if isinstance(settings.quotas.layers[-1], FileStore):
            ours = {}
            with suppress(UnreadableError):  # reported with the configuration
                ours = (await asyncio.to_thread(load_files, settings)).policy.limits
        problems += double_enforcement.of_both(ours, brokers)
    for problem in problems:
        found.warn("quotas", f"{problem.path}: {problem.message}", problem.hint)
