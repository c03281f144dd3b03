"""A connection from its accept to its session: what is known of it."""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from socket import socket
from typing import Final

from config.units import Address
from proxy.edge.connection_slots import ConnectionSlot
from proxy.edge.refused import Close
from proxy.edge.wires import ClientWire
from proxy.runtime.clock import monotonic_s
from proxy.session.session import Session


@dataclass(slots=True, eq=False)
class Handshake:
    """The part of an arrival that OpenSSL's callbacks see."""

    client: socket
    server_name: str | None = field(default=None, init=False)
    """The host name that the client sent (SNI)."""


HANDSHAKE: Final[ContextVar[Handshake]] = ContextVar("HANDSHAKE")
"""The handshake of the task that called ``connect_accepted_socket``; transports keep the context they are created
in."""


@dataclass(slots=True, eq=False)
class Arrival(Handshake):
    """One accepted connection, until it has a session."""

    peer: Address
    """The client's address, in its canonical form: the socket's peer, or the source in the PROXY header."""
    node_id: int | None
    """The broker whose port, or host name, was connected to; None: any."""
    counted_at: int | None
    """The broker for which the connection counts towards limits of addresses; None while it is not known."""
    deadline_ms: int
    """Deadline for the first request and for authentication, by the clock of all processes of this machine."""
    names_source: bool = False
    """A load balancer's, whose PROXY header names the client and has not come yet."""
    passed_host: str | None = None
    """The host in its ClientHello, if another worker has accepted it."""
    awaited: str = "PROXY protocol header"
    admitted_ms: int | None = None
    """When it was counted for its address; None: not yet."""
    is_exempt: bool = False
    """No quota is for its address."""
    slot: ConnectionSlot | None = None
    wire: ClientWire | None = None
    session: Session | None = None
    task: asyncio.Task[None] = field(init=False)
    came_s: float = field(default_factory=monotonic_s)
    hold: Callable[[Close], None] | None = None
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
