"""Checks the brokers behind the proxy, with the proxy's own settings, from the doctor's machine."""

import asyncio
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from config.cluster import Route
from config.units import Address
from protocol.errors import ProtocolError
from protocol.locator import Endpoint
from protocol.requests import WHICH_VERSIONS
from proxy.brokers.cluster import which_brokers
from proxy.brokers.connection import connect
from proxy.brokers.failures import describe
from proxy.brokers.login import BrokerLogin, LoginError
from proxy.brokers.tls import broker_context
from proxy.doctor.findings import DoctorFindings

TIMEOUT_S: Final = 5.0
ERRORS: Final = (OSError, TimeoutError, EOFError, ProtocolError)
"""Errors of failed connections."""


@dataclass(frozen=True, slots=True)
class BrokerState:
    """The state of the brokers, which may explain failures at the proxy."""

    reached: bool
    """At least one broker answered."""
    silent: frozenset[int] = frozenset()
    """Node ids of known brokers that did not answer."""


async def check_brokers(found: DoctorFindings, route: Route, *, demands_sasl: bool) -> BrokerState:
    """Ask each bootstrap broker for Metadata, with the proxy's login, and try every broker in it."""
    try:
        context = broker_context(route.tls) if route.tls is not None else None
    except OSError as error:
        found.fail("brokers", str(error), "write that file")
        return BrokerState(reached=False)
    login = BrokerLogin(route.sasl) if route.sasl is not None else None
    blind = login is None and demands_sasl
    endpoints: dict[int, Endpoint] = {}
    answered: dict[Address, bool] = {}
    for address in route.bootstrap:
        told = await _ask(found, address, context, login, blind=blind)
        answered[address] = told is not None
        endpoints.update({endpoint.node_id: endpoint for endpoint in told or ()})
    reached = any(answered.values())
    silent = []
    for node_id in sorted(endpoints):
        address = Address(endpoints[node_id].host.decode("utf-8", "replace"), endpoints[node_id].port)
        if address not in answered:
            answered[address] = await _ask(found, address, context, None, blind=True, node_id=node_id) is not None
        if not answered[address]:
            silent.append(node_id)
    if blind:
        fix = "set cluster.sasl or cluster.state: without either, the proxy knows brokers only from clients' Metadata"
        found.warn("brokers", "they demand SASL, and the proxy has no login to ask them for their addresses", fix)
    return BrokerState(reached, frozenset(silent))


async def _ask(
    found: DoctorFindings,
    address: Address,
    context: ssl.SSLContext | None,
    login: BrokerLogin | None,
    *,
    blind: bool,
    node_id: int | None = None,
) -> Sequence[Endpoint] | None:
    """Ask one broker for the others; ``blind``: only whether it answers. None: it did not answer."""
    broker = f"bootstrap broker {address}" if node_id is None else f"broker {node_id} at {address}"
    try:
        async with asyncio.timeout(TIMEOUT_S), connect(address.host, address.port, context) as connection:
            if blind:
                await connection.ask(WHICH_VERSIONS)
                found.ok("brokers", f"{broker} answers")
                return ()
            if login is not None:
                await login.perform(connection)
            endpoints = await which_brokers(connection)
    except LoginError as error:
        found.fail("brokers", f"{broker} {error}", "compare cluster.sasl with the brokers' users")
    except ERRORS as error:
        found.broken("brokers", broker, describe(error), "is it up, and reached from here as the settings say?")
    else:
        names = ", ".join(str(endpoint.node_id) for endpoint in sorted(endpoints))
        found.ok("brokers", f"{broker} answers: the cluster has brokers {names}")
        return endpoints
    return None
