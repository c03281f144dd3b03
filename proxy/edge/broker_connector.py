"""Connects sessions to brokers, and finds out which broker a bootstrap connection reached: quotas are per broker."""

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from typing import cast

from proxy.brokers.cluster import UNKNOWN, Broker, Cluster
from proxy.edge.connection_slots import ConnectionSlot
from proxy.edge.protected_topics import Guard
from proxy.edge.transports import BrokerWire
from proxy.runtime.faults import contained
from proxy.runtime.tasks import attempt
from proxy.session.session import Session


class BrokerConnector:
    """Connects the sessions of one listener to the brokers of its cluster."""

    def __init__(self, cluster: Cluster, protected_topics: Collection[bytes]) -> None:
        self._cluster = cluster
        self._protected_topics = protected_topics
        self.unnamed: dict[Session, tuple[Broker, BrokerWire]] = {}
        """Sessions whose broker's node id is unknown; ``Listener`` removes them when they are closed."""

    async def connect(self, session: Session, slot: ConnectionSlot, node_id: int | None) -> bool:
        """Connect ``session`` to its broker, or from the bootstrap address to the first that accepts.

        Returns whether a connection was made.
        """
        if node_id is None:
            await self._cluster.first_answer()
        for broker in self._cluster.candidates(node_id):
            connection = BrokerWire(session, slot)
            slot.open_descriptors += 1
            try:
                await self._cluster.open(broker, cast("asyncio.BaseProtocol", connection))
            except (OSError, TimeoutError) as error:
                slot.descriptor_closed()
                self._cluster.note_attempt(broker, error)
                continue
            self._cluster.note_attempt(broker, None)
            if session.closed:
                connection.close()
                return True
            if broker.node_id == UNKNOWN:
                self.unnamed[session] = (broker, connection)  # before ``connected``, which may close the session
            session.connected(connection, broker.node_id, self._guarded(connection, session))
            if session in self.unnamed:
                await self.name()
            return True
        return False

    def _guarded(self, broker: BrokerWire, session: Session) -> Callable[[bytes], None]:
        """Return the function that forwards requests to the broker, but none to produce to a protected topic."""
        if not self._protected_topics:
            return broker.write
        return Guard(self._protected_topics, broker.write, lambda: session.sasl.raw).write

    async def name(self) -> None:
        """Assign bootstrap sessions to their brokers, once these are known.

        A session whose broker cannot be determined is drained: quotas are per broker, and its next connection
        goes to a known one.
        """
        if not self._cluster.named:
            return
        for session in list(self.unnamed):
            if not await attempt("name the broker of a session", partial(self._name, session)):
                contained("name the broker of a session", session.abort)

    async def _name(self, session: Session) -> None:
        if session not in self.unnamed:
            return  # closed or named meanwhile
        bootstrap, connection = self.unnamed[session]
        node_id = await self._cluster.node_at(bootstrap, connection.peer)
        if self.unnamed.pop(session, None) is None or session.closed:
            return
        if node_id == UNKNOWN:
            session.drain()
        else:
            session.broker_known(node_id)
