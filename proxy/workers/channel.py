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

Answer = Callable[[Any], Awaitable[object]]
"""Answers what the other end has asked."""


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

    async def call(self, asked: object) -> Any:
        """Return the answer of the other end. Raises GoneError, and what the other end raised."""
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            await self._send(number, True, asked)
            return await answer
        finally:
            del self._waiting[number]

    async def serve(self) -> None:
        """Answer calls until the other end is closed."""
        try:
            while True:
                (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
                data = await self._reader.readexactly(length)
                number, is_call, content = await asyncio.to_thread(pickle.loads, data)
                if is_call:
                    spawn(self._reply(number, content), "answer a call")
                else:
                    self._answered(number, *content)
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

    async def _reply(self, number: int, asked: Any) -> None:
        answer: tuple[object, Exception | None]
        try:
            answer = await self._answer(asked), None
        except Exception as error:  # noqa: BLE001  raised at the caller
            answer = None, error
        try:
            await self._send(number, False, answer)
        except GoneError:
            pass
        except Exception as error:  # noqa: BLE001  cannot be pickled, whatever it is: the caller must not wait in vain
            await self._send(number, False, (None, RuntimeError(f"{error!r} of {answer!r:.200}")))

    def _answered(self, number: int, value: object, error: Exception | None) -> None:
        waiting = self._waiting.get(number)
        if waiting is None or waiting.done():
            return  # it came too late
        if error is None:
            waiting.set_result(value)
        else:
            waiting.set_exception(error)

    async def _send(self, number: int, is_call: bool, content: object) -> None:
        async with self._sending:
            data = await asyncio.to_thread(pickle.dumps, (number, is_call, content))
            if not self._is_open:
                raise GoneError("the other process has ended")
            self._writer.writelines((_LENGTH.pack(len(data)), data))
