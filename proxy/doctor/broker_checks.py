"""Checks the brokers behind the proxy, with the proxy's own settings, from the doctor's machine."""

import asyncio
import ssl
from dataclasses import dataclass
from typing import Final

from config.cluster import Route
from config.units import Address
from protocol.errors import ProtocolError
from proxy.brokers.connection import connect
from proxy.brokers.failures import describe
from proxy.brokers.login import BrokerLogin, LoginError
from proxy.brokers.metadata import Metadata, host_of, is_kraft, which_brokers
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
    first = next((said for said in told.values() if said is not None and said.cluster_id), None)
    for address, said in told.items():
        if first is not None and said is not None and said.cluster_id != first.cluster_id:
            what = (
                f"bootstrap broker {address} belongs to cluster {said.cluster_id}, the first one to {first.cluster_id}"
            )
            found.fail("brokers", what, "make bootstrap name the brokers of one cluster")
    brokers = {} if first is None else {each.node_id: each for each in first.brokers}
    reached = any(said is not None for said in told.values())
    silent = []
    for node_id in sorted(brokers):
        address = Address(host_of(brokers[node_id]), brokers[node_id].port)
        broker = f"broker {node_id} at {address}"
        if address not in told:
            told[address] = await _ask(found, broker, address, context, login, blind=blind)
        said = told[address]
        if said is None:
            silent.append(node_id)
        elif first is not None and said.cluster_id != first.cluster_id:
            found.fail(
                "brokers", f"{broker} belongs to cluster {said.cluster_id}", "give the address back to its broker"
            )
        elif first is not None and said.at(address.host, address.port) != (node_id,):
            found.fail("brokers", f"{broker} is another broker of the cluster", "give the address back to its broker")
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
        async with asyncio.timeout(TIMEOUT_S), connect(address.host, address.port, context) as connection:
            if login is not None:
                await login.perform(connection)
            await is_kraft(connection)
            if blind:
                found.ok("brokers", f"{broker} answers")
                return Metadata("", ())
            said = await which_brokers(connection)
    except LoginError as error:
        found.fail("brokers", f"{broker} {error}", "compare cluster.sasl with the brokers' users")
    except ERRORS as error:
        found.broken("brokers", broker, describe(error), "is it up, and reached from here as the settings say?")
    else:
        names = ", ".join(str(endpoint.node_id) for endpoint in sorted(said.brokers))
        found.ok("brokers", f"{broker} answers: the cluster has brokers {names}")
        return said
    return None
