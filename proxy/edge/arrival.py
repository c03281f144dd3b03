"""A connection from its accept to its session: what is known of it, and how it is refused."""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from socket import socket
from typing import Final

from config.units import Address
from protocol.errors import ProtocolError
from proxy.edge.connection_slots import ConnectionSlot
from proxy.edge.wires import ClientWire
from proxy.session.session import Session

ADDRESS: Final = 1
"""Its address is known."""
BROKER: Final = 2
"""It is known which broker it wants, or that any will do."""
REQUEST: Final = 4
"""Its first request is there."""

Close = Callable[[], None]


class Refused(Exception):  # noqa: N818  no error of ours
    """A connection goes no further.

    It is counted for the cause of ``error``, or under the label ``outcome``; ``by_limit``: also in usage records of its
    listener. ``hold`` takes the function that closes it, and calls that in a moment; without it, it is closed at once.
    """

    def __init__(
        self,
        error: ProtocolError | None = None,
        outcome: str | None = None,
        *,
        by_limit: bool = False,
        hold: Callable[[Close], None] | None = None,
    ) -> None:
        super().__init__(outcome, error)
        self.error = error
        self.outcome = outcome
        self.by_limit = by_limit
        self.hold = hold


class LeftEarly(Refused):
    """The client closed the connection before its first request was complete, as health checks do all day."""

    def __init__(self) -> None:
        super().__init__(outcome="left_early")


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
    came_s: float
    """When it came here, on the loop's clock."""
    deadline_s: float
    """Deadline for the first request and for authentication, likewise."""
    names_source: bool = False
    """A load balancer's, whose PROXY header names the client and has not come yet."""
    passed_host: str | None = None
    """The host in its ClientHello, if another worker has accepted it."""
    known: int = 0
    """ADDRESS, BROKER and REQUEST, as far as they are there."""
    awaited: str = "PROXY protocol header"
    admitted_ms: int = 0
    """When it was counted for its address."""
    slot: ConnectionSlot | None = None
    wire: ClientWire | None = None
    """Its transport, once there is one."""
    session: Session | None = None
    task: asyncio.Task[None] = field(init=False)
    """The task that takes the connection from its socket to its broker."""
    is_given_away: bool = False
    """It is closed by somebody else."""

    @property
    def host(self) -> str:
        """The IP address that it counts for; "" until a load balancer names it."""
        return "" if self.names_source else self.peer.host

    def give_away(self) -> Close:
        """Return the function that closes it, to whoever sees to that from now on. It is not read any more."""
        self.is_given_away = True
        if self.wire is None:
            return self.client.close
        self.wire.pause_reading()
        return self.wire.abort

    def free_slot(self) -> None:
        """Give its slot back, if it has one."""
        slot, self.slot = self.slot, None
        if slot is not None:
            slot.descriptor_closed()

    def descriptor_closed(self) -> None:
        """Note that its transport has closed the socket."""
        self.free_slot()

    def release(self) -> None:
        """Close it, unless it has a session or is given away, and let go of what refers to it in turn: it is freed
        without the garbage collector.
        """
        if self.session is None:
            if not self.is_given_away and self.wire is not None:
                self.wire.abort()
            elif not self.is_given_away:
                self.client.close()
            self.free_slot()
        self.wire = None
