"""A few Kafka requests by hand, for readiness and for comparing bytes.

Built from struct, so that no codec of ours or of a client library stands between the test and the wire.
"""

import contextlib
import socket
import ssl
import struct
from dataclasses import dataclass
from typing import Final

API_VERSIONS: Final = 18
TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> "Address":
        host, _, port = text.rpartition(":")
        return cls(host, int(port))


def frame(
    api_key: int, version: int, correlation_id: int, client_id: str | None, body: bytes, *, flexible: bool = False
) -> bytes:
    """A request: size, header v1 (v2 with an empty tag section when `flexible`), body."""
    name = b"\xff\xff" if client_id is None else struct.pack(">h", len(client_id.encode())) + client_id.encode()
    header = struct.pack(">hhi", api_key, version, correlation_id) + name + (b"\x00" if flexible else b"")
    return struct.pack(">i", len(header) + len(body)) + header + body


class Connection:
    """A blocking connection that sends frames and reads frames; within TLS where a context is given."""

    def __init__(
        self,
        address: Address,
        timeout_s: float = TIMEOUT_S,
        *,
        tls: ssl.SSLContext | None = None,
        source: str | None = None,
    ) -> None:
        here = None if source is None else (source, 0)
        self._socket = socket.create_connection((address.host, address.port), timeout=timeout_s, source_address=here)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=address.host)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> bytes:
        """One response with its size in front; ConnectionError when the peer closed."""
        size = self._exactly(4)
        return size + self._exactly(struct.unpack(">i", size)[0])

    def exchange(self, data: bytes) -> bytes:
        self.send(data)
        return self.receive()

    def is_closed_by_peer(self) -> bool:
        """Wait for one more byte, up to the timeout; true when the end of the stream came instead."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    def finish(self) -> None:
        """Send no more; what comes is still read."""
        self._socket.shutdown(socket.SHUT_WR)

    def rest(self) -> bytes:
        """Everything until the peer closes; TimeoutError if it does not."""
        found = bytearray()
        with contextlib.suppress(ConnectionError):
            while chunk := self._some(1 << 16):
                found += chunk
        return bytes(found)

    def cut(self) -> None:
        """End it from another thread: whoever waits for it is told at once."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _exactly(self, size: int) -> bytes:
        chunks = bytearray()
        while len(chunks) < size:
            chunk = self._some(min(size - len(chunks), 1 << 20))
            if not chunk:
                raise ConnectionError(f"closed after {len(chunks)} of {size} bytes")
            chunks += chunk
        return bytes(chunks)

    def _some(self, size: int) -> bytes:
        """What has come, at most so much; nothing at the end of the stream."""
        return self._socket.recv(size)


def answers_api_versions(address: Address) -> bool:
    """Whether a broker (or the proxy) serves Kafka there: the port being open says less."""
    try:
        with Connection(address, timeout_s=1.0) as connection:
            return connection.exchange(frame(API_VERSIONS, 0, 1, "harness", b""))[4:10] == b"\x00\x00\x00\x01\x00\x00"
    except OSError:
        return False
