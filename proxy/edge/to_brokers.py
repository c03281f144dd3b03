"""From sessions to their brokers, and to know which brokers those are: quotas are per broker."""

import asyncio
from functools import partial
from typing import cast

from proxy.brokers.cluster import UNKNOWN, Broker, Cluster
from proxy.edge.connection_places import Place
from proxy.edge.transports import BrokerEnd
from proxy.runtime.faults import contained
from proxy.runtime.tasks import attempt
from proxy.session.session import Session


class ToBrokers:
    """Connects the sessions of one listener to the brokers of its cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.unnamed: dict[Session, tuple[Broker, BrokerEnd]] = {}
        """Sessions whose broker's node id is not known yet, until they are closed (``Listener`` takes them out)."""

    async def connect(self, session: Session, place: Place, node_id: int | None) -> bool:
        """Connect ``session`` to its broker, or on the bootstrap address to the first that takes the connection.

        Returns whether one did.
        """
        if node_id is None:
            await self._cluster.first_answer()
        for broker in self._cluster.candidates(node_id):
            end = BrokerEnd(session, place)
            place.open_ends += 1
            try:
                await self._cluster.open(broker, cast("asyncio.BaseProtocol", end))
            except (OSError, TimeoutError) as error:
                place.end_lost()
                self._cluster.note_attempt(broker, error)
                continue
            self._cluster.note_attempt(broker, None)
            if session.closed:
                end.close()
                return True
            if broker.node_id == UNKNOWN:
                self.unnamed[session] = (broker, end)  # before what the client has sent is read, which may close it
            session.connected(end, broker.node_id)
            if session in self.unnamed:
                await self.name()
            return True
        return False

    async def name(self) -> None:
        """Charge the sessions of bootstrap addresses for their brokers, as soon as these are known.

        A session whose broker cannot be told from its address is closed after what is in flight: quotas are per
        broker, and the next connection is to one that is known.
        """
        if not self._cluster.named:
            return
        for session in list(self.unnamed):
            if not await attempt("name the broker of a session", partial(self._name, session)):
                contained("name the broker of a session", session.abort)

    async def _name(self, session: Session) -> None:
        if session not in self.unnamed:
            return  # closed meanwhile, or named
        bootstrap, end = self.unnamed[session]
        node_id = await self._cluster.node_at(bootstrap, end.peer)
        if self.unnamed.pop(session, None) is None or session.closed:
            return
        if node_id == UNKNOWN:
            session.drain()
        else:
            session.broker_known(node_id)
