"""Listening sockets: bound once, by the supervisor, and handed to every worker that asks (SCM_RIGHTS).

A port stays open while any process has its socket. So connections wait for a worker that is started again, and a broker
moves to another worker without a refused connection. Workers ask and wait, since a port has to be open before clients
are told of it: that takes the supervisor's next turn of the loop, once for each broker and listener.
"""

import asyncio
import os
import pickle
import socket
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

from proxy.edge.listening import Bind
from proxy.runtime.tasks import on_readable

_ANSWER_S: Final = 2.0
"""The worker stands still meanwhile, and it has to see in time that the supervisor is silent."""
_MOST_BYTES: Final = 65536
_MOST_SOCKETS: Final = 250
"""The kernel passes at most 253 in one message; a port has one for each address of its host."""

_ALIVE: Final = b"\0"
"""Sent by a worker in place of a question; no pickle begins so."""

At = tuple[str, int]
"""Host and port, as in the settings; or ``TO_WORKER`` and the number of one."""

TO_WORKER: Final = "to worker"
"""Instead of a host: the two ends of the socket at which a worker receives connections that others accept."""


class Ports:
    """The supervisor's side. ``on_asked`` is called whenever a worker has asked: it may have found a broker."""

    def __init__(self, bind: Bind, on_asked: Callable[[], None]) -> None:
        self._bind = bind
        self._on_asked = on_asked
        self._bound: dict[At, list[socket.socket]] = {}
        self._is_closed = False

    def keep(self, wanted: Collection[At]) -> None:
        """Close all other ports here; workers have closed theirs."""
        for at in self._bound.keys() - set(wanted):
            if at[0] != TO_WORKER or self._is_closed:
                for each in self._bound.pop(at):
                    each.close()

    def close(self) -> None:
        """Close all ports here, and bind no more."""
        self._is_closed = True
        self.keep(())

    def serve(self, end: socket.socket, on_alive: Callable[[], None]) -> None:
        """Answer the worker at the other end of ``end``. ``on_alive`` is called now and then, while its loop runs."""
        end.setblocking(False)
        on_readable(end, "hand a port to a worker", self._answer, end, on_alive)

    def leave(self, end: socket.socket) -> None:
        asyncio.get_running_loop().remove_reader(end)

    def _answer(self, end: socket.socket, on_alive: Callable[[], None]) -> None:
        try:
            asked = end.recv(_MOST_BYTES)
        except BlockingIOError:
            return
        if not asked:
            self.leave(end)
            return
        if asked == _ALIVE:
            on_alive()
            return
        at = pickle.loads(asked)  # noqa: S301  from our own process
        try:
            sockets = self._sockets(at)
        except OSError as error:
            end.send(pickle.dumps((at, error)))
        else:
            socket.send_fds(end, [pickle.dumps((at, None))], [each.fileno() for each in sockets])
        self._on_asked()

    def _sockets(self, at: At) -> list[socket.socket]:
        if self._is_closed:
            raise OSError("the proxy is stopping")
        if at not in self._bound:
            self._bound[at] = self._bind(*at) if at[0] != TO_WORKER else _pair()
        return self._bound[at]


def _pair() -> list[socket.socket]:
    pair = list(socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    for each in pair:
        each.setblocking(False)
    return pair


class PortsOfSupervisor:
    """The worker's side; ``bind`` is its ``Bind``."""

    def __init__(self, end: socket.socket) -> None:
        end.settimeout(_ANSWER_S)
        self._end = end

    def tell_alive(self) -> None:
        """Tell that the event loop of this worker runs. Calls wait behind large ones, and could not tell it in time."""
        with suppress(OSError):  # the supervisor has ended, or hangs
            os.write(self._end.fileno(), _ALIVE)

    def bind(self, host: str, port: int) -> list[socket.socket]:
        """Return the listening sockets of a port. Raises OSError."""
        self._end.send(pickle.dumps((host, port)))
        while True:
            answer, descriptors, _, _ = socket.recv_fds(self._end, _MOST_BYTES, _MOST_SOCKETS)
            if not answer:
                raise ConnectionResetError("the supervisor has ended, and ports are its own")
            at, error = pickle.loads(answer)  # noqa: S301  from our own process
            sockets = [socket.socket(fileno=each) for each in descriptors]
            if at == (host, port):
                break
            for each in sockets:  # the answer to a question that was given up
                each.close()
        if error is not None:
            raise error
        for each in sockets:
            each.setblocking(False)
        return sockets
