"""A listener with a host name for each broker (SNI), whose one port several workers share."""

import asyncio
import socket
from functools import partial
from typing import Any, Final

from protocol.errors import ProtocolError
from proxy.edge.arrivals import Arrival, LeftEarly, read_source
from proxy.edge.connection_slots import ConnectionSlots
from proxy.edge.listeners import Listener
from proxy.edge.passing import AGAIN_S, Passed, Passing, named_host
from proxy.runtime.faults import contained

_LOOKS_AGAIN: Final = 15
"""For three seconds: workers learn every second of brokers that others have found."""


class SharedListener(Listener):
    """Accepts connections for all workers, and passes those for brokers of others on.

    All others are served here, also those whose handshake is going to fail. A connection counts for the connection rate
    of its address, and for limits of connections, at the worker that serves it; until then it has one of ``unsorted``.
    """

    def __init__(self, passing: Passing, unsorted: ConnectionSlots, *parts: Any) -> None:
        """``parts``: as of ``Listener``."""
        super().__init__(*parts)
        self._passing = passing
        self._unsorted = unsorted
        passing.receive(self.name, self.take_passed)

    def take_passed(self, client: socket.socket, message: Passed) -> None:
        """Take a connection that another worker accepted."""
        arrival = Arrival(client, message.peer, None, None, message.deadline_s)
        if not self._acceptor.open:
            client.close()
        elif message.host in self._advertised.hosts:
            super()._admit(arrival)
        else:
            self._keep(arrival, self._unsorted, partial(self._sort, is_passed=True))

    def _admit(self, arrival: Arrival) -> None:
        self._keep(arrival, self._unsorted, partial(self._sort, is_passed=False))

    async def _sort(self, arrival: Arrival, *, is_passed: bool) -> None:
        """Pass a connection on, or serve it here, with what is left in its socket."""
        try:
            host = await self._find_host(arrival)
            is_gone = not is_passed and await self._pass_on(arrival, host)
        except (ProtocolError, asyncio.CancelledError) as error:
            self._stats.connections[self.name, "accepted"] += 1
            if not isinstance(error, ProtocolError):
                raise
            arrival.is_dismissed = True
            self._reject(arrival, error)
            return
        arrival.is_dismissed = arrival.taken = True
        if not is_gone:
            here = Arrival(arrival.client, arrival.peer, None, None, arrival.deadline_s)
            here.awaits_header = arrival.awaits_header
            contained("take a connection", super()._admit, here, otherwise=here.client.close)

    async def _find_host(self, arrival: Arrival) -> str:
        """Return the host that a client names, "" if it names none. Raises ProtocolError for a wrong PROXY header.

        A host that is not known yet may be that of a new broker.
        """
        try:
            if arrival.awaits_header:
                await read_source(arrival)
                self._unsorted.name(arrival.slot, arrival.host)
        except LeftEarly:
            return ""
        arrival.awaited = "TLS handshake"
        host = await named_host(arrival.client)
        for _ in range(_LOOKS_AGAIN):
            if not host or host in self._advertised.hosts:
                break
            await asyncio.sleep(AGAIN_S)
        return host

    async def _pass_on(self, arrival: Arrival, host: str) -> bool:
        """Pass a connection on if the broker with that host is another worker's; return whether it is."""
        node_id, owners = self._advertised.hosts.get(host), self._admission.owners
        worker = None if node_id is None or owners is None else owners.other_worker(node_id)
        if worker is None:
            return False
        message = Passed(self.name, host, arrival.peer, arrival.deadline_s)
        if not await self._passing.send(worker, arrival.client, message):
            self._stats.connections[self.name, "broker_unreachable"] += 1
        arrival.client.close()
        return True
