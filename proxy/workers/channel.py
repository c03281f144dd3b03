"""Calls between two processes, in both directions: pickles over a stream socket, each behind its length.

Pickles are read only from a process that this program has started, over a socket that nobody else has. They are made
and read by threads: for 100,000 entities that takes 0.7 s, during which the event loop goes on.
"""

import asyncio
import pickle
import socket
from collections.abc import Awaitable, Callable
from itertools import count
from struct import Struct
from typing import Any, Final

from proxy.runtime.tasks import spawn

_LENGTH: Final = Struct("!Q")

Answer = Callable[[str, tuple[Any, ...]], Awaitable[object]]
"""Answers a call, given its name and arguments."""


class GoneError(ConnectionError):
    """The other process has ended, or closed the channel."""


class Channel:
    """An end of the socket. ``answer`` answers calls of the other end; they begin in their order."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._numbers = count()
        self._sending = asyncio.Lock()
        self._is_open = False

    async def open(self, end: socket.socket) -> None:
        """Use ``end``, one socket of a pair, and own it."""
        self._reader, self._writer = await asyncio.open_unix_connection(sock=end)
        self._is_open = True

    async def call(self, name: str, *arguments: Any) -> Any:
        """Return the answer of the other end. Raises GoneError, and what the other end raised."""
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            await self._send(number, name, arguments)
            return await answer
        finally:
            del self._waiting[number]

    async def serve(self) -> None:
        """Answer calls until the other end is closed."""
        try:
            while True:
                (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
                data = await self._reader.readexactly(length)
                number, name, content = await asyncio.to_thread(pickle.loads, data)
                if name is None:
                    self._answered(number, *content)
                else:
                    spawn(self._reply(number, name, content), "answer a call")
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.close()

    def close(self) -> None:
        """Close this end; all calls fail."""
        self._is_open = False
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(GoneError("the other process has ended"))
        self._writer.close()

    async def _reply(self, number: int, name: str, arguments: tuple[Any, ...]) -> None:
        answer: tuple[object, Exception | None]
        try:
            answer = await self._answer(name, arguments), None
        except Exception as error:  # noqa: BLE001  raised at the caller
            answer = None, error
        try:
            await self._send(number, None, answer)
        except GoneError:
            pass
        except Exception as error:  # noqa: BLE001  cannot be pickled, whatever it is: the caller must not wait in vain
            await self._send(number, None, (None, RuntimeError(f"{name}: {error!r} of {answer!r:.200}")))

    def _answered(self, number: int, value: object, error: Exception | None) -> None:
        waiting = self._waiting.get(number)
        if waiting is None or waiting.done():
            return  # it came too late
        if error is None:
            waiting.set_result(value)
        else:
            waiting.set_exception(error)

    async def _send(self, number: int, name: str | None, content: tuple[Any, ...]) -> None:
        """Send a call, or an answer, which has no name."""
        async with self._sending:
            data = await asyncio.to_thread(pickle.dumps, (number, name, content))
            if not self._is_open:
                raise GoneError("the other process has ended")
            self._writer.writelines((_LENGTH.pack(len(data)), data))
