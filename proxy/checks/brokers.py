"""Asks the bootstrap brokers which cluster they belong to, for ``sluice check --brokers``."""

import asyncio
import ssl
from collections.abc import Iterable, Iterator
from typing import Final

from config.cluster import Route
from config.document import Document
from config.problems import InvalidValue, Steps
from config.settings import Listener, Settings
from config.units import Address
from proxy.brokers.connection import connect
from proxy.brokers.failures import describe
from proxy.brokers.login import BrokerLogin
from proxy.brokers.metadata import Metadata, is_kraft, which_brokers
from proxy.brokers.tls import broker_context
from proxy.brokers.verification import ERRORS
from proxy.checks.findings import Finding, Severity

TIMEOUT_S: Final = 5.0


def look_at_brokers(settings: Settings, document: Document) -> Iterator[Finding]:
    """Yield the brokers that do not answer, and those of another cluster: all addresses must lead to one."""
    routes: list[tuple[Steps, Route, list[Listener]]]
    routes = [(("cluster",), settings.cluster, [each for each in settings.listeners if each.cluster is None])]
    for index, listener in enumerate(settings.listeners):
        if listener.cluster is not None:
            routes.append((("listeners", index, "cluster"), listener.cluster, [listener]))
    asked = [
        (steps, address, route)
        for steps, route, listeners in routes
        if route.sasl or all(each.authentication != "sasl" for each in listeners)
        for address in route.bootstrap
    ]
    answers = asyncio.run(_ask_all((address, route) for _, address, route in asked))
    first: tuple[Address, str] | None = None
    for (steps, address, _), answer in zip(asked, answers, strict=True):
        at = (*steps, "bootstrap")
        if isinstance(answer, Exception):
            severity = Severity.UNUSABLE if "KRaft controller" in str(answer) else Severity.WARNING
            said = InvalidValue(f"{address}: {describe(answer)}", "is it up, and reached from here?")
            yield Finding(severity, document.problem(at, said))
        elif first is None:
            first = address, answer
        elif answer != first[1]:
            text = f"{address} belongs to cluster {answer}, and {first[0]} to {first[1]}"
            said = InvalidValue(text, "name the brokers of one cluster")
            yield Finding(Severity.UNUSABLE, document.problem(at, said))


async def _ask_all(asked: Iterable[tuple[Address, Route]]) -> list[str | Exception]:
    return await asyncio.gather(*(_cluster_id(address, route) for address, route in asked))


async def _cluster_id(address: Address, route: Route) -> str | Exception:
    """Return the cluster id that a broker says, or why it does not."""
    try:
        context = broker_context(route.tls) if route.tls is not None else None
        login = BrokerLogin(route.sasl) if route.sasl is not None else None
        return (await ask_broker(address, context, login)).cluster_id
    except ERRORS as error:
        return error


async def ask_broker(
    address: Address, context: ssl.SSLContext | None, login: BrokerLogin | None, *, blind: bool = False
) -> Metadata:
    """Return the brokers of the cluster, as one of them says; ``blind``: only ask whether it answers. Raises ERRORS."""
    async with asyncio.timeout(TIMEOUT_S), connect(address.host, address.port, context) as connection:
        if login is not None:
            await login.perform(connection)
        await is_kraft(connection)
        return Metadata("", ()) if blind else await which_brokers(connection)
