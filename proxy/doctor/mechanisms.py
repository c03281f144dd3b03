"""Checks the SASL mechanisms that brokers offer, for clients that the proxy cannot tell apart."""

import asyncio
from typing import Final

from config.cluster import Route
from config.listener import Listener
from protocol.answers import read_handshake
from protocol.requests import sasl_handshake
from proxy.brokers.connection import connect
from proxy.brokers.tls import broker_context
from proxy.doctor.broker_checks import ERRORS, TIMEOUT_S
from proxy.doctor.findings import DoctorFindings
from proxy.identity.mechanisms.registry import NAMING
from proxy.identity.principal import of_mechanism

_NONE_SUCH: Final = "-"
"""A mechanism that no broker has: it is refused with the list of supported ones."""


async def look_at_mechanisms(found: DoctorFindings, listener: Listener, route: Route) -> None:
    """Warn of mechanisms whose clients share one counter. Brokers that do not list their mechanisms are skipped."""
    for mechanism in await _offered(route):
        if mechanism in NAMING or (mechanism == "GSSAPI" and listener.sasl.kerberos is not None):
            continue
        fix = (
            "set sasl.kerberos"
            if mechanism == "GSSAPI"
            else f"set quotas for {of_mechanism(mechanism)}, or use another"
        )
        message = (
            f"they offer {mechanism}, which does not show who a client is: all of them share one counter, and a quota "
            "of the default user limits them all together"
        )
        found.warn("brokers", message, fix)


async def _offered(route: Route) -> list[str]:
    context = broker_context(route.tls) if route.tls is not None else None
    for address in route.bootstrap:
        try:
            async with asyncio.timeout(TIMEOUT_S), connect(address.host, address.port, context) as connection:
                return read_handshake(await connection.ask(sasl_handshake(_NONE_SUCH))).mechanisms
        except ERRORS:
            continue
    return []
