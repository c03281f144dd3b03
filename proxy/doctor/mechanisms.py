"""Which SASL mechanisms the brokers offer, and whose clients the proxy cannot tell apart."""

import asyncio
from typing import Final

from config.cluster import Route
from config.listener import Listener
from protocol.answers import read_handshake
from protocol.requests import sasl_handshake
from proxy.brokers.connection import connect
from proxy.brokers.tls import broker_context
from proxy.doctor.behind import ERRORS, TIMEOUT_S
from proxy.doctor.findings import DoctorFindings
from proxy.identity.mechanisms.known import NAMING
from proxy.identity.principal import unread

_NONE_SUCH: Final = "-"
"""A mechanism that no broker has: it is refused with the list of those that there are."""


async def look_at_mechanisms(found: DoctorFindings, listener: Listener, route: Route) -> None:
    """Warn of mechanisms whose clients share one counter. A broker that does not say which it offers is passed over."""
    for mechanism in await _offered(route):
        if mechanism in NAMING or (mechanism == "GSSAPI" and listener.sasl.kerberos is not None):
            continue
        fix = "set sasl.kerberos" if mechanism == "GSSAPI" else f"set quotas for {unread(mechanism)}, or use another"
        message = (
            f"they offer {mechanism}, which does not show who a client is: all of them share one counter, and a quota "
            "of the default user holds them all together"
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
