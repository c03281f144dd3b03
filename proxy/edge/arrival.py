"""A connection from its accept to its session: what is known of it."""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from socket import socket
from typing import Final

from config.units import Address
from proxy.edge.connection_slots import ConnectionSlot
from proxy.edge.stats import Close
from proxy.edge.wires import ClientWire
from proxy.runtime.clock import monotonic_s
from proxy.session.session import Session


class Handshake:
    """The part of an arrival that OpenSSL's callbacks see."""

    def __init__(self, client: socket) -> None:
        self.client = client
        self.server_name: str | None = None
        """The host name that the client sent (SNI)."""


HANDSHAKE: Final[ContextVar[Handshake]] = ContextVar("HANDSHAKE")
"""The handshake of the task that called ``connect_accepted_socket``; transports keep the context they are created
in."""


class Arrival(Handshake):
    """One accepted connection, until it has a session."""

    task: asyncio.Task[None]

    def __init__(
        self, client: socket, peer: Address, node_id: int | None, deadline_ms: int, names_source: bool = False
    ) -> None:
        super().__init__(client)
        self.peer = peer
        """The client's address, in its canonical form: the socket's peer, or the source in the PROXY header."""
        self.node_id = node_id
        """The broker whose port, or host name, was connected to; None: any."""
        self.counted_at = node_id
        """The broker for which the connection counts towards limits of addresses; None while it is not known."""
        self.deadline_ms = deadline_ms
        """Deadline for the first request and for authentication, by the clock of all processes of this machine."""
        self.names_source = names_source
        """A load balancer's, whose PROXY header names the client and has not come yet."""
        self.passed_host: str | None = None
        """The host in its ClientHello, if another worker has accepted it."""
        self.awaited = "PROXY protocol header"
        self.admitted_ms: int | None = None
        """When it was counted for its address; None: not yet."""
        self.is_exempt = False
        """No quota is for its address."""
        self.slot: ConnectionSlot | None = None
        self.wire: ClientWire | None = None
        self.session: Session | None = None
        self.came_s = monotonic_s()
        self.hold: Callable[[Close], None] | None = None
        """Holds it for a moment before it is closed (``Refused``)."""

    @property
    def host(self) -> str:
        """The IP address that it counts for; "" until a load balancer names it."""
        return "" if self.names_source else self.peer.host

    def free_slot(self) -> None:
        slot, self.slot = self.slot, None
        if slot is not None:
            slot.descriptor_closed()

    def release(self) -> None:
        """Close it or have it held, unless it has a session, and let go of what refers to it in turn: so it is freed
        without the garbage collector.
        """
        if self.session is None:
            self.free_slot()
            close = self.client.close if self.wire is None else self.wire.abort
            if self.hold is None:
                close()
            else:
                if self.wire is not None:
                    self.wire.pause_reading()
                self.hold(close)
        self.wire = None
