"""A gate before one address: open, shut (connections are refused), silent (they are taken, and nothing passes), or
blocked, as by a firewall that drops packets (nothing passes, and who connects gets no answer).

with Gate(listen, target) as gate:
    ... gate.shut() ... gate.open() ... gate.silence() ... gate.block() ...
"""

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Coroutine
from typing import Any, Final, Self

from tests.harness.listening import stop_listening
from tests.harness.wire import Address

CHUNK_BYTES: Final = 1 << 16
STOP_TIMEOUT_S: Final = 10.0
UNANSWERED_S: Final = 0.5


class Gate:
    """Relays `listen` to `target`, from a thread of its own. What is silent or blocked when it opens again goes on."""

    def __init__(self, listen: Address, target: Address, tls: ssl.SSLContext | None = None) -> None:
        self._listen = listen
        self._target = target
        self.tls = tls
        """With it, the gate terminates TLS."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gate", daemon=True)
        self._server: asyncio.Server | None = None
        self._relays: set[asyncio.Task[None]] = set()
        self.audible = asyncio.Event()
        """Set while bytes pass."""
        self._plugs: list[socket.socket] = []
        """While it is blocked: one that listens, and those that fill its queue."""
        self.connections = 0
        """That were taken, ever."""

    def open(self) -> None:
        self._unplug()
        self._run(self._open())

    def shut(self) -> None:
        """Refuse connections, and end those that are there."""
        self._unplug()
        self._run(self._shut())

    def silence(self) -> None:
        """Take connections, and let nothing through."""
        self._run(self._silence())

    def block(self) -> None:
        """Let nothing through, and answer no SYN: the kernel drops them where a full queue waits to be accepted."""
        self._run(self._stop_listening())
        at = (self._listen.host, self._listen.port)
        self._plugs.append(socket.create_server(at, backlog=0))
        with contextlib.suppress(TimeoutError):
            while True:
                filler = socket.socket()
                filler.settimeout(UNANSWERED_S)
                self._plugs.append(filler)
                filler.connect(at)

    def _unplug(self) -> None:
        for plug in self._plugs:
            plug.close()
        self._plugs.clear()

    def __enter__(self) -> Self:
        self._thread.start()
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.shut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_TIMEOUT_S)
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(STOP_TIMEOUT_S)

    async def _open(self) -> None:
        self.audible.set()
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, self._listen.host, self._listen.port, ssl=self.tls)

    async def _silence(self) -> None:
        await self._open()
        self.audible.clear()

    async def _stop_listening(self) -> None:
        self.audible.clear()
        if self._server is not None:
            await stop_listening(self._server)
            self._server = None

    async def _shut(self) -> None:
        await self._stop_listening()
        while self._relays:
            for relay in self._relays:
                relay.cancel()
            await asyncio.wait(self._relays)
        self.audible.set()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        relay = self._loop.create_task(self._relay(reader, writer))
        self._relays.add(relay)
        relay.add_done_callback(self._relays.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            with contextlib.suppress(OSError):
                target_reader, target_writer = await asyncio.open_connection(self._target.host, self._target.port)
                writers.append(target_writer)
                pumps = (
                    self.pump(reader, target_writer, are_answers=False),
                    self.pump(target_reader, writer, are_answers=True),
                )
                tasks = [self._loop.create_task(pump) for pump in pumps]
                try:
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for task in tasks:
                        task.cancel()
        finally:
            for each in writers:
                each.transport.abort()

    async def pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        are_answers: bool,
    ) -> None:
        """Relay one direction; when it returns, both ends of the connection are dropped."""
        with contextlib.suppress(OSError):
            while chunk := await reader.read(CHUNK_BYTES):
                await self.audible.wait()
                writer.write(chunk)
                await writer.drain()
