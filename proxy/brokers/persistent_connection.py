"""A persistent connection of the proxy itself, to whichever broker answers."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from config.cluster import Route
from config.units import Address
from protocol.answers import read_versions
from protocol.errors import ProtocolError
from protocol.requests import WHICH_VERSIONS, Request
from proxy.brokers.connection import BrokerConnection, open_connection
from proxy.brokers.failures import OF_SLUICE, Fixes, describe
from proxy.brokers.login import BrokerLogin, LoginError
from proxy.brokers.metadata import host_of, which_brokers
from proxy.brokers.tls import broker_context

_CONNECT_S: Final = 3.0
"""Timeout for connection and login together, short so that further brokers are tried soon."""
_ANSWER_S: Final = 5.0
_MOST_KNOWN: Final = 100
_ERRORS: Final = (OSError, TimeoutError, EOFError, ProtocolError)


class UnansweredError(Exception):
    """No broker answered; the text has each one's failure, and the fix."""

    def __init__(self, text: str, *, refused: bool = False, too_old: bool = False) -> None:
        super().__init__(text)
        self.refused = refused
        """The login was refused: an early retry is pointless, and may lock the user."""
        self.too_old = too_old
        """The broker does not support the request."""


async def _no_login(_: BrokerConnection) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class Access:
    """Addresses of brokers, TLS (``context`` raises OSError if its files are unusable) and login of a cluster."""

    addresses: tuple[Address, ...]
    context: Callable[[], ssl.SSLContext | None] = lambda: None
    log_in: Callable[[BrokerConnection], Awaitable[None]] = _no_login
    user: str | None = None
    """The login's user, if it is known here."""
    fixes: Fixes = OF_SLUICE

    async def open(
        self, host: str, port: int, begin: Callable[[BrokerConnection], Awaitable[None]] | None = None
    ) -> BrokerConnection:
        """Connect, and log in, or do all of ``begin`` instead. Raises as ``open_connection`` and ``log_in``."""
        connection = await open_connection(host, port, self.context())
        try:
            await (begin or self.log_in)(connection)
        except BaseException:
            connection.abort()
            raise
        return connection


def access_by(route: Route) -> Access:
    """Return the proxy's own access to its brokers."""
    tls, sasl = route.tls, route.sasl
    return Access(
        route.bootstrap,
        lambda: None if tls is None else broker_context(tls),
        _no_login if sasl is None else BrokerLogin(sasl).perform,
        None if sasl is None else sasl.username,
    )


@dataclass(eq=False)
class PersistentConnection:
    """Sends requests to the broker that answered last, or else another one of the settings, or named by a broker."""

    _access: Access
    _known: tuple[Address, ...] = ()
    _cluster_id: str = ""
    """The id of the cluster that answered first: another one is not asked."""
    _last: Address | None = None
    _connection: BrokerConnection | None = None
    _versions: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    _in_use: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def ask(self, request: Request) -> bytes:
        """Return the complete answer. Raises UnansweredError."""
        async with self._in_use:
            if self._connection is not None:
                with suppress(*_ERRORS):  # it was idle too long, or its login has expired (KIP-368)
                    return await self._ask(self._connection, request)
                await self.close()
            return await self._ask_or_close(request)

    async def ask_once(self, request: Request) -> bytes:
        """Like ``ask``, but on the current connection only: a request that changes something is not repeated."""
        async with self._in_use:
            return await self._ask_or_close(request)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _ask_or_close(self, request: Request) -> bytes:
        connection = self._connection or await self._connect()
        try:
            return await self._ask(connection, request)
        except _ERRORS as error:
            await self.close()
            raise UnansweredError(f"{self._last}: {describe(error, self._access.fixes)}") from None

    async def _ask(self, connection: BrokerConnection, request: Request) -> bytes:
        lowest, highest = self._versions.get(request.api_key, (0, -1))
        if not lowest <= request.version <= highest:
            raise UnansweredError(f"{self._last}: does not know {request.spec}: Kafka does from 2.6 on", too_old=True)
        async with asyncio.timeout(_ANSWER_S):
            return await connection.ask(request)

    async def _connect(self) -> BrokerConnection:
        access, failures = self._access, dict[Address, str]()
        addresses = dict.fromkeys((*access.addresses, *self._known))
        first = [self._last] if self._last in addresses else []
        for address in dict.fromkeys([*first, *addresses]):
            try:
                async with asyncio.timeout(_CONNECT_S):
                    self._connection = await access.open(address.host, address.port, self._introduce)
            except LoginError as error:  # users are the same at all brokers, so all refuse
                raise UnansweredError(f"{address}: {error}", refused=True) from None
            except _ERRORS as error:
                failures[address] = f"{address}: {describe(error, access.fixes)}"
            else:
                self._last = address
                return self._connection
        # In the order of the settings, so that the same failures give the same text wherever it began.
        raise UnansweredError("; ".join(failures[address] for address in addresses))

    async def _introduce(self, connection: BrokerConnection) -> None:
        self._versions = read_versions(await connection.ask(WHICH_VERSIONS))
        await self._access.log_in(connection)
        said = await which_brokers(connection)
        if said.cluster_id != (self._cluster_id or said.cluster_id):
            raise ConnectionError(f"belongs to cluster {said.cluster_id}, not to {self._cluster_id}")
        self._cluster_id = said.cluster_id
        named = (Address(host_of(each), each.port) for each in said.brokers)
        self._known = tuple(sorted(named, key=str))[:_MOST_KNOWN]
