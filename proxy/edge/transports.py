"""The two ends of a session: they move bytes and know nothing of Kafka."""

import asyncio
from collections.abc import Callable
from typing import Final

from protocol.errors import ProtocolError
from proxy.edge.end import Behind, End, Holder, alone
from proxy.edge.kernel import bound_receive_buffer, keep_alive
from proxy.runtime.clock import now_ms
from proxy.runtime.faults import contained
from proxy.session.wires import BROKER, CLIENT

TLS_WRITE_BYTES: Final = 48 * 1024
"""How much is encrypted at once: three records. Of 250 kB the encrypted ones have left the cache before they are sent,
and each connection keeps a buffer of that size (fetch of 1 MiB: 1.2 times HAProxy's cost at once, 0.95 in parts)."""


class ClientEnd(End):
    """What a client is connected to.

    ``begin`` is given all that came so far and makes the session, or returns None where more has to come first. It
    raises ProtocolError to refuse the client, which ``refused`` then tells.
    """

    __deletable__ = ("_begin", "_begun")  # for mypyc
    __slots__ = ("_begin", "_begun", "_receive_buffer_bytes", "refused")

    def __init__(
        self,
        begin: Callable[["ClientEnd", bytes], Behind | None],
        holder: Holder,
        receive_buffer_bytes: int = -1,
    ) -> None:
        super().__init__(holder)
        self._begin = begin
        self._begun = b""
        self._session = None
        self._receive_buffer_bytes = receive_buffer_bytes
        self.refused: ProtocolError | None = None

    @alone
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
        except Exception as fault:  # noqa: BLE001  as ``alone`` does, without a call for each chunk
            self.failed("ClientEnd.data_received", fault)

    def _greet(self, data: bytes, now_ms: int) -> None:
        if self.refused is not None:
            return
        begun = self._begun + data
        session = self._session = self._begin(self, begun)
        if session is None:
            self._begun = begun
            return
        del self._begin, self._begun  # they hold what brought the client here, which is over
        self._feed = session.requests.feed
        self._feed(begun, now_ms)

    def bound_receive_buffer(self) -> None:
        """Have the kernel receive no more than ``limits.socket_receive_buffer`` ahead of what is read, from now on."""
        if self._receive_buffer_bytes > 0 and (connection := self._socket) is not None:
            bound_receive_buffer(connection, self._receive_buffer_bytes)
            self._receive_buffer_bytes = -1

    def has_finished(self) -> bool:
        """Whether the client has closed its side, as the kernel sees it: also while it is not read."""
        return self.look().peer_finished

    @alone
    def eof_received(self) -> bool:
        self._finished()
        if self.tls is not None and self._cut_off is None:
            self._linger()
        # Without TLS answers may still be on their way, and the session closes this end. With TLS the transport is
        # closing already: asyncio's knows no half-close.
        return self.tls is None and self._session is not None and not self._session.closed

    @alone
    def pause_writing(self) -> None:
        if self._session is not None:
            self._session.client_blocked(True)

    @alone
    def resume_writing(self) -> None:
        if self._session is not None:
            self._session.client_blocked(False)

    @alone
    def connection_lost(self, exc: Exception | None) -> None:
        self._gone()
        if self.tls is not None and exc is None:
            if self._session is not None and not self._session.closed:
                self._session.client_blocked(False)  # what is written now goes nowhere
            self._finished()
        elif self._session is not None:
            self._session.close()
        if self._session is not None:
            self._part(self._session)

    def _finished(self) -> None:
        """The client has sent all that it wants to: what is held back of it is still worked on."""
        if self._session is not None and not self._session.closed:
            self._session.client_finished()

    def _write_encrypted(self, data: bytes) -> None:
        """Write, unless TLS is over: then the answers of a client that has finished have nowhere to go."""
        if self._transport.is_closing():
            return
        if len(data) <= TLS_WRITE_BYTES:
            self._transport.write(data)
            return
        parts = memoryview(data)
        for start in range(0, len(data), TLS_WRITE_BYTES):
            self._transport.write(parts[start : start + TLS_WRITE_BYTES])


class BrokerEnd(End):
    """What connects a session to its broker."""

    __slots__ = ("_is_kept_alive",)

    def __init__(self, session: Behind, holder: Holder) -> None:
        super().__init__(holder)
        self._session = session
        self._feed = session.answers.feed
        self._is_kept_alive = False

    def keep_alive(self) -> None:
        """Have the kernel ask whether the broker is there: not from the beginning, for most that is short is busy."""
        if not self._is_kept_alive and (connection := self._socket) is not None:
            self._is_kept_alive = True
            keep_alive(connection)

    @alone
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._made(transport)

    @property
    def peer(self) -> tuple[str, int]:
        """Host and port that it is connected to, as numbers."""
        name = self._transport.get_extra_info("peername")
        return name[0], name[1]

    def data_received(self, data: bytes) -> None:
        try:
            self._feed(data, now_ms())
        except ProtocolError as error:
            if self._session is not None:
                contained("reject", self._session.reject, BROKER, error, otherwise=self.abort)
        except Exception as fault:  # noqa: BLE001  as ``alone`` does, without a call for each chunk
            self.failed("BrokerEnd.data_received", fault)

    def eof_received(self) -> bool:
        return False  # a broker that has closed its side has closed: connection_lost says so

    @alone
    def pause_writing(self) -> None:
        if self._session is not None:
            self._session.broker_blocked(True)

    @alone
    def resume_writing(self) -> None:
        if self._session is not None:
            self._session.broker_blocked(False)

    @alone
    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  a reset is as good as an end here
        self._gone()
        if self._session is not None:
            self._session.broker_lost()  # the client learns it by its own close
            self._part(self._session)
