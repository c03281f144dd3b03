"""A link to a server that can be cut: TCP through a port of its own.

`drop` is what a firewall does that drops packets: connections stay and nothing comes through, and who connects gets no
answer at all, because the queue of those who wait to be accepted is full and the kernel drops their SYN. What was sent
meanwhile arrives when the link is healed, as the kernel's repetitions would. `refuse` resets all, like a host without
the server.
"""

import contextlib
import socket
import struct
import threading
from types import TracebackType
from typing import Final, Self

from tests.harness.ports import LOOPBACK, free_port
from tests.harness.wire import Address

CHUNK_BYTES: Final = 1 << 16
FILLING_S: Final = 0.5
_RESET: Final = struct.pack("ii", 1, 0)


class Link:
    """A way to `server`, as a context manager; healthy at the beginning."""

    def __init__(self, server: Address) -> None:
        self.address = Address(LOOPBACK, free_port())
        self._server = server
        self._flows = threading.Event()
        self._flows.set()
        self._listener: socket.socket | None = None
        self._open: set[socket.socket] = set()
        self._waiting: list[socket.socket] = []
        """What fills the queue of the listener while the link is cut."""
        self._lock = threading.Lock()

    def drop(self) -> None:
        self._flows.clear()
        # The accepting thread takes one more; the queue has room for another; from then on none is answered.
        while True:
            filler = socket.socket()
            self._waiting.append(filler)
            filler.settimeout(FILLING_S)
            try:
                filler.connect((self.address.host, self.address.port))
            except TimeoutError:
                return

    def heal(self) -> None:
        """After `drop` or `refuse`."""
        for filler in self._waiting:
            filler.close()
        self._waiting.clear()
        self._flows.set()
        if self._listener is None:
            self._listen()

    def refuse(self) -> None:
        if self._listener is not None:
            listener, self._listener = self._listener, None
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # which ends its `accept`
            listener.close()
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    each.shutdown(socket.SHUT_RDWR)

    def _listen(self) -> None:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((self.address.host, self.address.port))
        listener.listen(0)
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            self._flows.wait()
            try:
                server = socket.create_connection((self._server.host, self._server.port), timeout=1.0)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            with self._lock:
                self._open |= {client, server}
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(CHUNK_BYTES):
                self._flows.wait()
                sink.sendall(chunk)
        self._flows.wait()  # an end does not come through either
        with self._lock:
            self._open -= {source, sink}
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def __enter__(self) -> Self:
        self._listen()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.heal()
        self.refuse()
