"""Connections to the coordinator of the group, the broker that all instances ask."""

import asyncio
from typing import Final

from protocol.errors import Cause, ProtocolError
from protocol.frames import RESPONSE_HEAD
from protocol.groups import GroupError, find_coordinator, read_coordinator
from protocol.requests import Request
from proxy.brokers.connection import BrokerConnection
from proxy.brokers.failures import describe
from proxy.brokers.login import LoginError
from proxy.brokers.persistent_connection import Access, PersistentConnection, UnansweredError

_CONNECT_S: Final = 3.0
ANSWER_S: Final = 2.0
_MOST_KEPT_BYTES: Final = 16 * 1024 * 1024
_DROPPED_BYTES: Final = 64 * 1024
_ERRORS: Final = (OSError, TimeoutError, EOFError, ProtocolError)


_OTHERS: Final = (
    " is in use by others (consumers, a share or streams group), or by instances of another version: end them, or "
    "write a name of its own in owners.group"
)
REFUSED: Final = {
    GroupError.INVALID_SESSION_TIMEOUT: ": owners.session is not within group.min.session.timeout.ms and "
    "group.max.session.timeout.ms of the brokers: write one that is",
    GroupError.INCONSISTENT_GROUP_PROTOCOL: _OTHERS,
    GroupError.GROUP_ID_NOT_FOUND: _OTHERS,
    GroupError.INVALID_GROUP_ID: " is refused: INVALID_GROUP_ID",
    GroupError.GROUP_MAX_SIZE_REACHED: " has as many members as group.max.size lets it: are they instances?",
}
"""The brokers' errors about ``owners.group``, in words, with the fix."""


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
        self._connection: BrokerConnection | None = None
        self._in_use = asyncio.Lock()

    async def ask(self, request: Request, within_s: float = ANSWER_S, longest_bytes: int | None = None) -> bytes:
        """Return the whole answer; with ``longest_bytes``, that to JoinGroup without longer messages of members.

        Raises NoCoordinatorError and NotAllowedError.
        """
        async with self._in_use:
            try:
                async with asyncio.timeout(within_s + 2 * _CONNECT_S):
                    connection = self._connection
                    if connection is None:
                        self._at = await self._find()
                        connection = self._connection = await self._access.open(*self._at)
                    async with asyncio.timeout(within_s):
                        if longest_bytes is None:
                            return await connection.ask(request)
                        return await shortened(*await connection.begin(request), longest_bytes)
            except (*_ERRORS, asyncio.CancelledError) as error:
                await self.forget()
                if isinstance(error, LoginError):
                    raise NotAllowedError(str(error)) from None
                if isinstance(error, _ERRORS):
                    raise NoCoordinatorError(describe(error)) from None
                raise

    async def ask_apart(self, request: Request) -> bytes:
        """Return the whole answer to a request on a connection of its own, to the coordinator of before.

        It needs no loop but the one that it runs on. Raises NoCoordinatorError.
        """
        if self._at is None:
            raise NoCoordinatorError("the coordinator is not known")
        try:
            async with asyncio.timeout(ANSWER_S):
                connection = await self._access.open(*self._at)
                try:
                    return await connection.ask(request)
                finally:
                    await connection.close()
        except _ERRORS as error:
            raise NoCoordinatorError(describe(error)) from None

    def not_allowed(self) -> NotAllowedError:
        """Return the error for a user without rights on the group."""
        principal = f"User:{self._access.user or 'ANONYMOUS'}"
        fix = f"kafka-acls --add --allow-principal {principal} --operation Read --group {self._group}"
        return NotAllowedError(f"{principal} may not use group {self._group} (GROUP_AUTHORIZATION_FAILED): {fix}")

    async def forget(self) -> None:
        """Close the connection, and look for the coordinator again before the next request."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def close(self) -> None:
        """Close all connections."""
        await self.forget()
        await self._any_broker.close()

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


async def shortened(size: int, reader: asyncio.StreamReader, longest_bytes: int) -> bytes:
    """Read a JoinGroup response, v2 to v4, of ``size`` more bytes, and return it with members' messages left empty that
    are longer than ``longest_bytes``, or behind _MOST_KEPT_BYTES: strangers with READ on the group can join
    with any number of megabytes. Raises ProtocolError if its fields go beyond its end.
    """
    kept = bytearray(RESPONSE_HEAD.size)

    async def take(number: int, *, drops: bool = False) -> bytes:
        nonlocal size
        if not 0 <= number <= size:
            raise ProtocolError(Cause.BAD_BODY, "JoinGroup response with fields that go beyond its end")
        size -= number
        if drops:
            while number:
                number -= len(await reader.readexactly(min(number, _DROPPED_BYTES)))
            return bytes(4)
        return await reader.readexactly(number)

    async def text() -> bytes:
        length = await take(2)
        return length + await take(int.from_bytes(length, "big"))

    kept += await take(10)  # throttle time, error, generation
    for _ in range(3):  # protocol, leader, member id
        kept += await text()
    kept += (number := await take(4))
    for _ in range(int.from_bytes(number, "big")):
        kept += await text()
        length = await take(4)
        many = int.from_bytes(length, "big")
        if many > longest_bytes or len(kept) > _MOST_KEPT_BYTES:
            kept += await take(many, drops=True)
        else:
            kept += length + await take(many)
    return bytes(kept)
