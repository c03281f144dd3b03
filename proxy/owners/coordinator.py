"""Connections to the coordinator of the group, the broker that all instances ask."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from protocol.errors import ProtocolError
from protocol.groups import GroupError, find_coordinator, read_coordinator
from protocol.requests import Request
from proxy.brokers.connection import BrokerConnection, connect
from proxy.brokers.failures import describe
from proxy.brokers.login import LoginError
from proxy.brokers.persistent_connection import Access, PersistentConnection, UnansweredError

_CONNECT_S: Final = 3.0
ANSWER_S: Final = 2.0
_ERRORS: Final = (OSError, TimeoutError, EOFError, ProtocolError)


class NoCoordinatorError(Exception):
    """The coordinator is not known, or does not answer."""


class NotAllowedError(Exception):
    """The brokers refuse this instance; the text has the fix."""


class Coordinator:
    """Asks the coordinator of ``group``, which is looked for when it is needed."""

    def __init__(self, access: Access, group: str) -> None:
        self._access = access
        self._group = group
        self._any_broker = PersistentConnection(access)
        self._at: tuple[str, int] | None = None
        """The coordinator found last."""
        self._open: AsyncExitStack | None = None
        self._connection: BrokerConnection | None = None
        self._in_use = asyncio.Lock()

    async def ask(self, request: Request, within_s: float = ANSWER_S) -> bytes:
        """Return the whole answer. Raises NoCoordinatorError and NotAllowedError."""
        async with self._in_use:
            try:
                async with asyncio.timeout(within_s + 2 * _CONNECT_S):
                    if self._connection is None:
                        await self._connect()
                    async with asyncio.timeout(within_s):
                        return await self._connection.ask(request)  # type: ignore[union-attr]  # connected above
            except LoginError as error:
                await self.forget()
                raise NotAllowedError(str(error)) from None
            except _ERRORS as error:
                await self.forget()
                raise NoCoordinatorError(describe(error)) from None
            except asyncio.CancelledError:
                await self.forget()
                raise

    async def ask_apart(self, request: Request) -> bytes:
        """Return the whole answer to a request on a connection of its own, to the coordinator of before.

        It needs no loop but the one that it runs on. Raises NoCoordinatorError.
        """
        if self._at is None:
            raise NoCoordinatorError("the coordinator is not known")
        try:
            async with asyncio.timeout(ANSWER_S), self._logged_in(self._at) as connection:
                return await connection.ask(request)
        except _ERRORS as error:
            raise NoCoordinatorError(describe(error)) from None

    def not_allowed(self) -> NotAllowedError:
        """Return the error for a user without rights on the group."""
        principal = f"User:{self._access.user or 'ANONYMOUS'}"
        fix = f"kafka-acls --add --allow-principal {principal} --operation Read --group {self._group}"
        return NotAllowedError(f"{principal} may not use group {self._group} (GROUP_AUTHORIZATION_FAILED): {fix}")

    async def forget(self) -> None:
        """Close the connection, and look for the coordinator again before the next request."""
        opened, self._open, self._connection = self._open, None, None
        if opened is not None:
            await opened.aclose()

    async def close(self) -> None:
        """Close all connections."""
        await self.forget()
        await self._any_broker.close()

    async def _connect(self) -> None:
        self._at = await self._find()
        opening = AsyncExitStack()
        try:
            self._connection = await opening.enter_async_context(self._logged_in(self._at))
        except BaseException:
            await opening.aclose()
            raise
        self._open = opening

    async def _find(self) -> tuple[str, int]:
        try:
            found = read_coordinator(await self._any_broker.ask(find_coordinator(self._group)))
        except UnansweredError as error:
            raise (NotAllowedError if error.refused else NoCoordinatorError)(str(error)) from None
        if found.error_code == GroupError.GROUP_AUTHORIZATION_FAILED:
            raise self.not_allowed()
        if found.error_code:
            raise NoCoordinatorError(f"FindCoordinator is answered with error {found.error_code}")
        return found.host, found.port

    @asynccontextmanager
    async def _logged_in(self, at: tuple[str, int]) -> AsyncIterator[BrokerConnection]:
        async with connect(*at, self._access.context()) as connection:
            if self._access.log_in is not None:
                await self._access.log_in(connection)
            yield connection
