"""The two ends of a session as asyncio protocols: they move bytes and know nothing of Kafka."""

import asyncio
from collections.abc import Callable
from typing import cast

from protocol.errors import ProtocolError
from proxy.clock import now_ms
from proxy.in_flight import BROKER, CLIENT
from proxy.session import Session

HIGH_WATER_BYTES = 256 * 1024
"""Bytes written and not yet taken by the peer, from which on the other end is not read. uvloop reads up to 250 kB at
once, so a lower mark would stop and start the other end with every large chunk."""

LINGER_S = 10.0
"""How long a closed end may take to send what was written before it is cut off."""


class _End(asyncio.Protocol):
    """A ``Wire`` over an asyncio transport, safe to call whatever state the transport is in."""

    __slots__ = ("_feed", "_transport", "write")

    _feed: Callable[[bytes, int], None]
    _transport: asyncio.Transport
    write: Callable[[bytes], None]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        self.write = self._transport.write

    # uvloop raises RuntimeError when a transport that is closing is paused or resumed.
    def pause_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self) -> None:
        self._transport.close()
        if self._transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(LINGER_S, self._transport.abort)

    def abort(self) -> None:
        self._transport.abort()

    @property
    def peer(self) -> str:
        """``host:port`` of the other side, for logs."""
        address = self._transport.get_extra_info("peername")
        return f"{address[0]}:{address[1]}" if address else "unknown"


class ClientEnd(_End):
    """What a client is connected to. ``accept`` makes its session, or returns None to refuse it."""

    __slots__ = ("_accept", "_session")

    def __init__(self, accept: Callable[["ClientEnd"], Session | None]) -> None:
        self._accept = accept
        self._session: Session | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        session = self._session = self._accept(self)
        if session is None:
            self.abort()
        else:
            self._feed = session.requests.feed

    def data_received(self, data: bytes) -> None:
        try:
            self._feed(data, now_ms())
        except ProtocolError as error:
            cast("Session", self._session).reject(CLIENT, error)

    def eof_received(self) -> bool:
        if self._session is None or self._session.closed:
            return False
        self._session.client_finished()
        return True  # answers may still be on their way; the session closes this end

    def pause_writing(self) -> None:
        if self._session is not None:
            self._session.client_blocked(True)

    def resume_writing(self) -> None:
        if self._session is not None:
            self._session.client_blocked(False)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  a reset is as good as an end here
        if self._session is not None:
            self._session.close()


class BrokerEnd(_End):
    """What connects a session to its broker."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session
        self._feed = session.answers.feed

    def data_received(self, data: bytes) -> None:
        try:
            self._feed(data, now_ms())
        except ProtocolError as error:
            self._session.reject(BROKER, error)

    def pause_writing(self) -> None:
        self._session.broker_blocked(True)

    def resume_writing(self) -> None:
        self._session.broker_blocked(False)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  the client learns it by its own close
        self._session.close()
