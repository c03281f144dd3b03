"""Socket options, bytes that are peeked at, and the kernel's view of a connection (TCP_INFO): polled, so that the data
path counts nothing.

While a connection is paused, neither asyncio nor uvloop notices that its peer has closed; the kernel does.
"""

import asyncio
import socket
from dataclasses import dataclass
from struct import Struct
from typing import Final, Protocol

from proxy.runtime.tasks import on_readable

KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4))
"""A vanished peer is noticed after two minutes; by the kernel's default, after two hours."""

# struct tcp_info of linux/tcp.h: state, last_data_sent, last_data_recv, bytes_acked.
_INFO: Final = Struct("=B43xI4xI64xQ")
_CLOSED: Final = 7
_CLOSE_WAIT: Final = 8

_OF_NUMBERS: Final = {"family": socket.SocketType.family, "type": socket.SocketType.type, "__slots__": ()}
_Connection: Final = type("Connection", (socket.socket,), _OF_NUMBERS)
"""A socket whose family and type are numbers: ``socket.socket`` looks them up in enumerations whenever asyncio asks,
which is five times and a tenth of a short connection. (Made so, as mypyc cannot compile such a class.)"""


class SocketOptions(Protocol):
    """A socket, or the wrapper of it that a transport exposes."""

    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...
    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class TcpState:
    """The kernel's view of one connection."""

    is_lost: bool
    """Reset, or the peer stopped answering."""
    peer_finished: bool
    """The peer has closed its side, and may still read."""
    idle_ms: int
    """Time since bytes went in either direction."""
    acked_bytes: int
    """Total bytes that the peer has acknowledged."""


LOST: Final = TcpState(is_lost=True, peer_finished=True, idle_ms=0, acked_bytes=0)


def look_at(connection: SocketOptions) -> TcpState:
    """Return the state of a connection; ``LOST`` if it is closed already."""
    try:
        state, sent_ms, received_ms, acked = _INFO.unpack(
            connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size)
        )
    except OSError:
        return LOST
    return TcpState(
        is_lost=state == _CLOSED,
        peer_finished=state in (_CLOSE_WAIT, _CLOSED),
        idle_ms=min(sent_ms, received_ms),
        acked_bytes=acked,
    )


def keep_alive(connection: SocketOptions) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def prepare_listening(listening: socket.socket, send_buffer_bytes: int) -> None:
    """Set the options that accepted connections inherit."""
    keep_alive(listening)
    if send_buffer_bytes > 0:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)


def accept(listening: socket.socket) -> tuple[socket.socket, tuple[str, int]]:
    """Return a connection, not blocking, and the address of its peer. Raises OSError as ``listening.accept``."""
    descriptor, peer = listening._accept()  # type: ignore[attr-defined]  # noqa: SLF001  as ``listening.accept`` does
    connection: socket.socket = _Connection(-1, socket.SOCK_STREAM, socket.IPPROTO_TCP, descriptor)
    connection.setblocking(False)
    return connection, peer


async def peek(connection: socket.socket, most_bytes: int) -> bytes:
    """Wait for bytes and return them unread; b"" at the end of the stream, or if the connection is reset."""
    loop = asyncio.get_running_loop()
    while True:
        readable = loop.create_future()
        on_readable(connection, "wake a waiter for first bytes", wake, readable)
        try:
            await readable
        finally:
            loop.remove_reader(connection)
        try:
            return connection.recv(most_bytes, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            continue
        except OSError:
            return b""


def wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
