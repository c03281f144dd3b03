"""Connects sessions to brokers, and finds out which broker a bootstrap connection reached: quotas are per broker."""

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, cast

from protocol.errors import ProtocolError
from proxy.brokers.broker import UNKNOWN, Broker, Refused, Unproven
from proxy.brokers.cluster import Cluster
from proxy.brokers.verification import ERRORS
from proxy.edge.connection_slots import ConnectionSlot
from proxy.edge.protected_topics import NO_SNI, NOT_OWNER, NOT_OWNER_OF_THIS, Guard
from proxy.edge.wires import BrokerWire
from proxy.runtime.faults import contained
from proxy.runtime.tasks import attempt, spawn
from proxy.session.session import Session

if TYPE_CHECKING:
    from proxy.owners.map import OwnersInForce


class BrokerConnector:
    """Connects the sessions of one listener to the brokers of its cluster.

    ``owners``: with several instances, those that own brokers. Sessions from the bootstrap address then get a broker of
    this instance. If it owns none that can be reached, they may ask another, but not move records.
    """

    def __init__(
        self, cluster: Cluster, protected_topics: Collection[bytes], owners: "OwnersInForce | None" = None
    ) -> None:
        self._owners = owners
        self._cluster = cluster
        self._protected_topics = protected_topics
        self.unnamed: dict[Session, tuple[Broker, BrokerWire]] = {}
        """Sessions whose broker's node id is unknown."""

    def names_one_controller(self) -> bool:
        """Whether clients are told of one controller, whose owner alone counts what they ask of it: where each broker
        has an owner, and brokers take requests for the controller (with ZooKeeper, only the controller itself does).
        """
        return self._owners is not None and self._cluster.is_kraft

    def next(self) -> int | None:
        """Return the broker for the next connection from the bootstrap address; None if no broker is known."""
        broker = self._candidates(None)[0]
        return None if broker.node_id == UNKNOWN else broker.node_id

    async def connect(
        self, session: Session, slot: ConnectionSlot, node_id: int | None, first: int | None, *, is_named: bool
    ) -> bool:
        """Connect ``session`` to its broker, or from the bootstrap address to the first that accepts: ``first``, if it
        can be reached. ``is_named``: the client has said by its port, or by the host in TLS, which broker it wants.

        Returns whether a connection was made.
        """
        if node_id is None:
            await self._cluster.first_answer()
        for broker in self._candidates(node_id, first):
            if self._has_gone(session):
                return True
            connection = BrokerWire(session, slot)
            slot.open_descriptors += 1
            try:
                verdict = await self._cluster.open(broker, cast("asyncio.BaseProtocol", connection))
            except ERRORS:
                verdict = None
            if verdict is None or isinstance(verdict, Refused):
                slot.descriptor_closed()
                continue
            if self._has_gone(session):
                connection.close()
                return True
            if broker.node_id == UNKNOWN:
                self.unnamed[session] = (broker, connection)  # before ``connected``, which may close the session
            write = self._guarded(connection, session, broker.node_id, node_id, is_named=is_named)
            vouch = partial(self._vouch, broker) if isinstance(verdict, Unproven) else None
            session.connected(connection, broker.node_id, write, vouch)
            if session in self.unnamed and vouch is None:
                await self.name()
            return True
        return False

    @staticmethod
    def _has_gone(session: Session) -> bool:
        return session.closed

    def _vouch(self, broker: Broker, answer: bytes) -> ProtocolError | None:
        error = self._cluster.told(broker, answer)
        if error is None and self.unnamed:
            spawn(self.name(), "name the brokers of bootstrap sessions")
        return error

    def _candidates(self, node_id: int | None, first: int | None = None) -> list[Broker]:
        """Return the brokers to try, best first."""
        owners, found = self._owners, self._cluster.candidates(node_id, first)
        if node_id is not None:
            return found
        if self._cluster.can_ask and self._cluster.named:  # bootstrap leads to some broker, and its quota to none
            found = [broker for broker in found if broker.node_id != UNKNOWN]
        if owners is not None:
            found.sort(key=lambda broker: not (broker.reachable and owners.owns(broker.node_id)))
        return found

    def _guarded(
        self, broker: BrokerWire, session: Session, node_id: int, wanted: int | None, *, is_named: bool
    ) -> Callable[[bytes], None]:
        """Return the function that forwards requests to the broker, but none that must not pass. ``wanted`` is the
        broker that the client chose, None for any.
        """
        refused = None if is_named else NO_SNI
        if refused is None and self._owners is not None and not self._owners.owns(node_id):
            refused = NOT_OWNER if wanted is None else NOT_OWNER_OF_THIS
        group = None if self._owners is None else self._owners.group
        if not self._protected_topics and refused is None and group is None:
            return broker.write
        return Guard(self._protected_topics, broker.write, lambda: session.sasl.raw, refused, group).write

    async def name(self) -> None:
        """Assign bootstrap sessions to their brokers, once these are known.

        A session whose broker cannot be determined is drained: quotas are per broker, and its next connection
        goes to a known one.
        """
        if not any(broker.reachable for broker in self._cluster.named):
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
