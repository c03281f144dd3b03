"""What the kernel knows of a connection, and what it is told: asked at leisure, so that no request has to count.

While an end is not read, neither asyncio nor uvloop notices that its peer has closed; the kernel does (TCP_INFO).
"""

import socket
from dataclasses import dataclass
from struct import Struct
from typing import Final, Protocol

KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4))
"""A peer that is gone without a word is noticed after two minutes; by the kernel's own default, after two hours."""

# struct tcp_info of linux/tcp.h: state, last_data_sent, last_data_recv, bytes_acked.
_INFO: Final = Struct("=B43xI4xI64xQ")
_CLOSED: Final = 7
_CLOSE_WAIT: Final = 8


class Options(Protocol):
    """A socket, or what a transport shows of its own."""

    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...
    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Tcp:
    """One end, as the kernel sees it now."""

    is_lost: bool
    """It was reset, or its peer did not answer any more."""
    peer_finished: bool
    """The peer has closed its side, and may still read."""
    idle_ms: int
    """Since bytes went in either direction."""
    acked_bytes: int
    """All that the peer has taken so far."""


LOST: Final = Tcp(is_lost=True, peer_finished=True, idle_ms=0, acked_bytes=0)


def look_at(connection: Options) -> Tcp:
    """Return the state of a connection; of one that is closed already, that it is lost."""
    try:
        state, sent_ms, received_ms, acked = _INFO.unpack(
            connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size)
        )
    except OSError:
        return LOST
    return Tcp(
        is_lost=state == _CLOSED,
        peer_finished=state in (_CLOSE_WAIT, _CLOSED),
        idle_ms=min(sent_ms, received_ms),
        acked_bytes=acked,
    )


def keep_alive(connection: Options) -> None:
    """Have the kernel ask whether the peer is there while nothing is sent."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def bound_receive_buffer(connection: Options, size: int) -> None:
    """Receive at most ``size`` (the kernel takes twice that, for its own part too) before it is read."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)


def prepare_listening(listening: socket.socket, send_buffer_bytes: int) -> None:
    """Set what every connection that it accepts begins with."""
    keep_alive(listening)
    if send_buffer_bytes > 0:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
