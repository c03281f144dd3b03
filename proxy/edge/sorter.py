"""With several workers at one port: connections are sorted by the host that they name in TLS (SNI), and those for
brokers of other workers are passed on (SCM_RIGHTS) before TLS begins.

The host in a ClientHello is read without taking it out of the socket, so that the other worker goes on as if it had
accepted the connection. Each worker receives at a socket of its own, which stays when its process is started again:
connections wait in it meanwhile, as in the backlog of a port.
"""

import asyncio
import pickle
import socket
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from config.units import Address
from protocol.tls_hello import MOST_BYTES, Hello, HelloSearch, NotAHelloError
from proxy.edge.connection_slots import ConnectionSlots
from proxy.edge.kernel import peek
from proxy.runtime.faults import contained
from proxy.runtime.tasks import on_readable

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


async def find_host(client: socket.socket, hosts: Container[str]) -> str:
    """Return the host in a ClientHello as ``named_host``; wait if it is none of ``hosts``: a new broker's, perhaps."""
    host = await named_host(client)
    for _ in range(_LOOKS_AGAIN):
        if not host or host in hosts:
            break
        await asyncio.sleep(AGAIN_S)
    return host


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
