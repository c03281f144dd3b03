"""A session's two connections: they move bytes and know nothing of Kafka."""

import asyncio
from collections.abc import Callable
from typing import Final

from protocol.errors import ProtocolError
from proxy.edge.asyncio_wire import AsyncioWire, DescriptorOwner, SessionHandle, contain_fault
from proxy.edge.kernel import bound_receive_buffer, keep_alive
from proxy.runtime.clock import now_ms
from proxy.runtime.faults import contained
from proxy.session.flow import BROKER, CLIENT

TLS_WRITE_BYTES: Final = 48 * 1024
"""Plaintext encrypted at once: three records. With 250 kB at once the first records have left the cache before they
are sent, and each connection keeps a buffer of that size (fetch of 1 MiB: 1.2 times HAProxy's cost at once, 0.95 in
parts)."""


class ClientWire(AsyncioWire):
    """The connection to a client.

    ``begin`` is given all bytes so far and creates the session, or returns None if more are needed. It raises
    ProtocolError to refuse the client; ``refused`` keeps that.
    """

    __deletable__ = ("_begin", "_begun")  # for mypyc
    __slots__ = ("_begin", "_begun", "_receive_buffer_bytes", "refused")

    def __init__(
        self,
        begin: Callable[["ClientWire", bytes], SessionHandle | None],
        owner: DescriptorOwner,
        receive_buffer_bytes: int = -1,
    ) -> None:
        super().__init__(owner)
        self._begin = begin
        self._begun = b""
        self._session = None
        self._receive_buffer_bytes = receive_buffer_bytes
        self.refused: ProtocolError | None = None

    @contain_fault
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._made(transport)
        self._feed = self._greet
        if self.tls is not None:
            self.write = self._write_encrypted

    def data_received(self, data: bytes) -> None:
        try:
            self._feed(data, now_ms())
        except ProtocolError as error:
            if self._session is not None:
                contained("reject", self._session.reject, CLIENT, error, otherwise=self.abort)
            else:
                self.refused = error
                self.abort()
        except Exception as fault:  # noqa: BLE001  as ``contain_fault`` does, without a call for each chunk
            self.failed("ClientWire.data_received", fault)

    def _greet(self, data: bytes, now_ms: int) -> None:
        if self.refused is not None:
            return
        begun = self._begun + data
        session = self._session = self._begin(self, begun)
        if session is None:
            self._begun = begun
            return
        del self._begin, self._begun  # they refer to the arrival, which is over
        self._feed = session.requests.feed
        self._feed(begun, now_ms)

    def bound_receive_buffer(self) -> None:
        """Limit the kernel's receive buffer to ``limits.socket_receive_buffer`` from now on."""
        if self._receive_buffer_bytes > 0 and (connection := self._socket) is not None:
            bound_receive_buffer(connection, self._receive_buffer_bytes)
            self._receive_buffer_bytes = -1

    def has_finished(self) -> bool:
        """Whether the client has closed its side, as the kernel sees it: known even while paused."""
        return self.look().peer_finished

    @contain_fault
    def eof_received(self) -> bool:
        self._finished()
        if self.tls is not None and self._cut_off is None:
            self._linger()
        # Without TLS answers may still follow, and the session closes this connection. With TLS the transport is
        # closing already: asyncio has no TLS half-close.
        return self.tls is None and self._session is not None and not self._session.closed

    @contain_fault
    def pause_writing(self) -> None:
        if self._session is not None:
            self._session.client_blocked(True)

    @contain_fault
    def resume_writing(self) -> None:
        if self._session is not None:
            self._session.client_blocked(False)

    @contain_fault
    def connection_lost(self, exc: Exception | None) -> None:
        self._gone()
        if self.tls is not None and exc is None:
            if self._session is not None and not self._session.closed:
                self._session.client_blocked(False)  # output from now on goes nowhere
            self._finished()
        elif self._session is not None:
            self._session.close()
        if self._session is not None:
            self._part(self._session)

    def _finished(self) -> None:
        """Note that the client has finished sending; its held requests are still worked on."""
        if self._session is not None and not self._session.closed:
            self._session.client_finished()

    def _write_encrypted(self, data: bytes) -> None:
        """Write, unless TLS is over: a client that has finished cannot get its answers then."""
        if self._transport.is_closing():
            return
        if len(data) <= TLS_WRITE_BYTES:
            self._transport.write(data)
            return
        parts = memoryview(data)
        for start in range(0, len(data), TLS_WRITE_BYTES):
            self._transport.write(parts[start : start + TLS_WRITE_BYTES])


class BrokerWire(AsyncioWire):
    """The connection to a broker."""

    __slots__ = ("_is_kept_alive",)

    def __init__(self, session: SessionHandle, owner: DescriptorOwner) -> None:
        super().__init__(owner)
        self._session = session
        self._feed = session.answers.feed
        self._is_kept_alive = False

    def keep_alive(self) -> None:
        """Turn on keepalive: late, since most short-lived connections are busy."""
        if not self._is_kept_alive and (connection := self._socket) is not None:
            self._is_kept_alive = True
            keep_alive(connection)

    @contain_fault
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._made(transport)

    @property
    def peer(self) -> tuple[str, int]:
        """Host and port of the peer, as numbers."""
        name = self._transport.get_extra_info("peername")
        return name[0], name[1]

    def data_received(self, data: bytes) -> None:
        try:
            self._feed(data, now_ms())
        except ProtocolError as error:
            if self._session is not None:
                contained("reject", self._session.reject, BROKER, error, otherwise=self.abort)
        except Exception as fault:  # noqa: BLE001  as ``contain_fault`` does, without a call for each chunk
            self.failed("BrokerWire.data_received", fault)

    def eof_received(self) -> bool:
        return False  # a half-close of the broker is a close: connection_lost follows

    @contain_fault
    def pause_writing(self) -> None:
        if self._session is not None:
            self._session.broker_blocked(True)

    @contain_fault
    def resume_writing(self) -> None:
        if self._session is not None:
            self._session.broker_blocked(False)

    @contain_fault
    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  a reset counts as a close
        self._gone()
        if self._session is not None:
            self._session.broker_lost()  # the client learns it by its own close
            self._part(self._session)
