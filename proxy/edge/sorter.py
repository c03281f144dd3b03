"""With several workers at one port: connections are sorted by the host that they name in TLS (SNI), and those for
brokers of other workers are passed on (SCM_RIGHTS) before TLS begins.

The host in a ClientHello is read without taking it out of the socket, so that the other worker goes on as if it had
accepted the connection. Each worker receives at a socket of its own, which stays when its process is started again:
connections wait in it meanwhile, as in the backlog of a port.
"""

import asyncio
import pickle
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from config.units import Address
from protocol.errors import ProtocolError
from protocol.tls_hello import MOST_BYTES, Hello, HelloSearch, NotAHelloError
from proxy.edge.arrival import Arrival
from proxy.edge.connection_slots import ConnectionSlots
from proxy.edge.doors import Places
from proxy.edge.kernel import peek
from proxy.edge.proxy_protocol import read_source
from proxy.edge.refused import Refused
from proxy.edge.stats import Stats
from proxy.runtime.faults import contained
from proxy.runtime.tasks import on_readable

if TYPE_CHECKING:
    from proxy.owners.map import OwnersInForce

log = structlog.get_logger("sluice.listener")

AGAIN_S: Final = 0.2
_LOOKS_AGAIN: Final = 15
"""For three seconds: workers learn every second of brokers that others have found."""
_AT_ONCE: Final = 8
"""Connections received per turn of the loop, as many as are accepted."""
_MESSAGE_BYTES: Final = 4096
_MOST_LOOKS: Final = 16
"""Looks at one ClientHello: each copies all of it that is there. A real one has a few TLS records."""


@dataclass(frozen=True, slots=True)
class Passed:
    """The message with a connection."""

    listener: str
    host: str
    """The host in its ClientHello, in lower case."""
    peer: Address
    """The client's address; that in the PROXY header, if there was one."""
    deadline_ms: int
    """As in ``Arrival``."""


class Passing:
    """Passes connections from and to worker ``own``. ``channels`` has both ends of each worker's socket: the one at
    which it receives, and the one to send to. ``unsorted``: slots of connections whose worker is not known yet.
    """

    def __init__(self, own: int, channels: Sequence[Sequence[socket.socket]], unsorted: ConnectionSlots) -> None:
        self.unsorted = unsorted
        self._receiver = channels[own][0]
        self._senders = [sender for _, sender in channels]
        self._takes: dict[str, Callable[[socket.socket, Passed], None]] = {}
        for number, (receiver, sender) in enumerate(channels):
            (sender if number == own else receiver).close()

    def receive(self, listener: str, take: Callable[[socket.socket, Passed], None]) -> None:
        """Call ``take`` with each connection to a listener that another worker passes on; it owns the socket."""
        self._takes[listener] = take
        on_readable(self._receiver, "receive connections of other workers", self._receive)

    async def send(self, worker: int, client: socket.socket, message: Passed) -> bool:
        """Pass a connection on, and leave its descriptor here open; return whether any process can receive it.

        While a worker's socket is full, connections for it wait, each in its slot and within its deadline.
        """
        while True:
            try:
                socket.send_fds(self._senders[worker], [pickle.dumps(message)], [client.fileno()])
            except ConnectionError:
                return False
            except OSError:  # EAGAIN; or ETOOMANYREFS: more sockets are on their way than files may be open
                await asyncio.sleep(AGAIN_S)
            else:
                return True

    def _receive(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                data, descriptors, _, _ = socket.recv_fds(self._receiver, _MESSAGE_BYTES, 1)
            except (BlockingIOError, InterruptedError):
                return
            if not data:  # no other worker is left, and no supervisor
                asyncio.get_running_loop().remove_reader(self._receiver)
                return
            message: Passed = pickle.loads(data)  # noqa: S301  from our own process
            if not descriptors:
                log.error("no descriptor for a connection of another worker", listener=message.listener)
                continue
            client = socket.socket(fileno=descriptors[0])
            client.setblocking(False)
            contained("take a connection", self._takes[message.listener], client, message, otherwise=client.close)


@dataclass(frozen=True)
class Sorter:
    """The part of one listener that passes connections on.

    A connection counts for the rate of its address, and for limits of connections, at the worker that serves it; until
    then it has one of ``places``. ``hosts``: host names → node ids.
    """

    passing: Passing
    places: Places
    hosts: Mapping[str, int | None]
    owners: "OwnersInForce | None"
    stats: Stats

    async def passes_on(self, arrival: Arrival) -> bool:
        """Whether another worker has the connection now; if not, it is served here, with what is left in its socket:
        also one whose handshake is going to fail. Raises Refused or ProtocolError.
        """
        try:
            if arrival.names_source:
                await read_source(arrival)
                self.places.take(arrival)
            arrival.awaited = "TLS handshake"
            host = await named_host(arrival.client)
            for _ in range(_LOOKS_AGAIN):
                if not host or host in self.hosts:
                    break
                await asyncio.sleep(AGAIN_S)  # it may be that of a new broker
            worker = None if arrival.passed_host is not None else self._other_worker(host)
            if worker is not None:
                message = Passed(self.places.listener, host, arrival.peer, arrival.deadline_ms)
                if not await self.passing.send(worker, arrival.client, message):
                    self.stats.connections[self.places.listener, "broker_unreachable"] += 1
        except (Refused, ProtocolError, asyncio.CancelledError):
            self.stats.connections[self.places.listener, "accepted"] += 1
            raise
        arrival.free_slot()
        return worker is not None

    def _other_worker(self, host: str) -> int | None:
        """Return the worker of the broker with that host; None if that is this one."""
        node_id = self.hosts.get(host)
        return None if node_id is None or self.owners is None else self.owners.other_worker(node_id)


async def named_host(client: socket.socket) -> str:
    """Return the host in a ClientHello, in lower case, unread; "" if it names none, or if that is none.

    Until there are as many bytes as it has at least, the socket is not readable: who sends one at a time wakes nobody,
    and who divides it into too many TLS records has named no host.
    """
    needed, search = 1, HelloSearch()
    try:
        for _ in range(_MOST_LOOKS):
            data = await peek(client, MOST_BYTES)
            found = search.look(data)
            if isinstance(found, Hello):
                return (found.server_name or "").lower()
            if len(data) < needed:  # the end of the stream
                return ""
            needed = found.needed_bytes
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, needed)
    except NotAHelloError:
        pass
    finally:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
    return ""
