"""One end of a session as an asyncio protocol: what that of the client and that of the broker have in common.

With TLS it is the loop's own transport that encrypts: the same calls, but for what is said of TLS here and there.
"""

import asyncio
import ssl
from collections.abc import Callable
from functools import wraps
from typing import Final, Protocol, TypeVar, TypeVarTuple, cast

from protocol.errors import ProtocolError
from proxy.edge.kernel import LOST, Options, Tcp, look_at
from proxy.runtime.faults import contained, note
from proxy.runtime.tasks import later

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

HIGH_WATER_BYTES: Final = 256 * 1024
"""Bytes written and not yet taken by the peer, from which on the other end is not read. uvloop reads up to 250 kB at
once, so a lower mark would stop and start the other end with every large chunk."""

LINGER_S = 10.0
"""How long a closed end may take none of what was written, or not end TLS, before it is cut off."""


EndT = TypeVar("EndT", bound="End")


def alone(callback: Callable[[EndT, *Ts], T]) -> Callable[[EndT, *Ts], T | None]:
    """Let a callback that raises end its own session only; what the loop would do differs from loop to loop."""

    @wraps(callback)
    def guarded(self: EndT, *args: *Ts) -> T | None:
        try:
            return callback(self, *args)
        except Exception as error:  # noqa: BLE001  that nothing gets past is what this is for
            self.failed(callback.__qualname__, error)
            return None

    return guarded


class _TlsTransport(Protocol):
    def set_read_buffer_limits(self, high: int, low: int) -> None: ...


class Holder(Protocol):
    """Whose descriptor an end has."""

    def end_lost(self) -> None:
        """Take note that it is closed, however that came."""
        ...


class Side(Protocol):
    """What takes the chunks of an end, one of a session's two."""

    def feed(self, data: bytes, now_ms: int) -> None: ...


class Behind(Protocol):
    """A session, as its ends see it."""

    @property
    def closed(self) -> bool: ...
    @property
    def requests(self) -> Side: ...
    @property
    def answers(self) -> Side: ...

    def client_blocked(self, blocked: bool) -> None: ...
    def client_finished(self) -> None: ...
    def broker_blocked(self, blocked: bool) -> None: ...
    def broker_lost(self) -> None: ...
    def reject(self, side: str, error: ProtocolError) -> None: ...
    def close(self) -> None: ...
    def end_lost(self) -> None: ...
    def abort(self) -> None: ...


class End:
    """A ``Wire`` over an asyncio transport, safe to call whatever state the transport is in.

    An asyncio protocol without asyncio's base class, with which a compiled one would have a ``__dict__``.
    """

    __deletable__ = ("_feed",)  # for mypyc
    __slots__ = ("_cut_off", "_feed", "_lost", "_session", "_transport", "holder", "tls", "write")

    _feed: Callable[[bytes, int], None]
    _session: Behind | None
    """None before there is one, and again when this end is lost."""
    _transport: asyncio.Transport
    _cut_off: asyncio.TimerHandle | None
    _lost: bool
    tls: ssl.SSLObject | None
    write: Callable[[bytes], None]

    def __init__(self, holder: Holder) -> None:
        self.holder = holder
        self._lost = True  # it is not connected yet
        self._cut_off = None

    def _made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        self._lost = False
        self.write = self._transport.write
        self.tls = transport.get_extra_info("ssl_object")
        if self.tls is not None:
            # While this end is not read, the socket must not be read either. By default TLS reads 256 KiB ahead, and
            # uvloop throws them away when the peer closes.
            cast("_TlsTransport", transport).set_read_buffer_limits(high=1, low=0)

    # uvloop raises RuntimeError when a transport that is closing is paused or resumed.
    def pause_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self) -> None:
        if self._lost:
            return
        if not self._transport.is_closing():  # asyncio's TLS transport cannot be closed twice
            self._transport.close()
        if self._cut_off is None and (self.tls is not None or self._transport.get_write_buffer_size()):
            self._linger()

    def abort(self) -> None:
        if not self._lost:
            self._transport.abort()

    @property
    def is_open(self) -> bool:
        """It is connected, and its socket not closed yet."""
        return not self._lost

    def look(self) -> Tcp:
        """Return what the kernel knows of this end."""
        connection = None if self._lost else self._socket
        return LOST if connection is None else look_at(connection)

    @property
    def _socket(self) -> Options | None:
        """None when it is closed: uvloop's transport forgets it before it says that it is lost."""
        return cast("Options | None", self._transport.get_extra_info("socket"))

    def _gone(self) -> None:
        self._lost = True
        if self._cut_off is not None:
            self._cut_off.cancel()
        self.holder.end_lost()

    def _part(self, session: Behind) -> None:
        """Forget the session, so that what is over is freed without the collector."""
        del self._feed
        self._session = None
        session.end_lost()

    def _linger(self) -> None:
        acked_bytes = self.look().acked_bytes
        self._cut_off = later(
            LINGER_S, "cut off what lingers", self._cut_off_unless_past, acked_bytes, otherwise=self._transport.abort
        )

    def _cut_off_unless_past(self, acked_bytes: int) -> None:
        """Cut off a peer that has taken nothing since ``acked_bytes``."""
        if self.look().acked_bytes > acked_bytes:
            self._linger()
        else:
            self._transport.abort()

    def failed(self, where: str, error: Exception) -> None:
        """Take a fault of ours: this session ends, and no other notices."""
        note(where, error)
        if self._session is not None:
            contained(where, self._session.abort)
        self._transport.abort()
