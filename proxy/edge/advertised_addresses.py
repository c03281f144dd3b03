"""The broker addresses that one listener advertises to its clients: a port or a host name (SNI) for each broker."""

import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from config.settings import Listener as ListenerSettings
from config.units import Address
from proxy.brokers.failures import describe
from proxy.edge.listening import Acceptor, Bind
from proxy.runtime.tasks import later

if TYPE_CHECKING:
    from proxy.owners.map import OwnersInForce

log = structlog.get_logger("sluice.listener")

_MAX_SHOWN_IDS: Final = 10
_OWNERS_S: Final = 5.0
"""How long clients of the bootstrap port wait for owners of brokers: a group of instances forms in three or four."""


@dataclass(frozen=True, slots=True)
class _Port:
    at: Address
    sockets: list[socket.socket]


class AdvertisedAddresses:
    """A listener's advertised addresses, one per known broker. A port is bound before clients are told of it."""

    def __init__(
        self, settings: ListenerSettings, acceptor: Acceptor, bind: Bind, owners: "OwnersInForce | None" = None
    ) -> None:
        """``owners``: tells which brokers other instances serve, and where; None: this one serves all."""
        self._owners = owners
        self._settings = settings
        self._acceptor = acceptor
        self._bind = bind
        self.hosts: dict[str, int | None] = {settings.advertise.host.lower(): None}
        """Host names that clients send in TLS (SNI) → the broker each one names; None: any broker."""
        self.told: dict[int, tuple[bytes, int]] = {}
        """Node id → advertised host and port."""
        self._ports: dict[int, _Port] = {}
        """Node id → bound port; empty with `broker_host`."""
        self._bootstrap: list[socket.socket] = []
        self._failures: dict[int, str] = {}
        """Node id → why its port could not be bound, as logged."""

    def open(self, node_id: int) -> None:
        """Advertise ``node_id``; its port accepts connections when this returns.

        While the proxy is stopping it no longer listens, but still advertises the same address: the next process will
        listen there.
        """
        if node_id not in self.told:
            self._bring(node_id)

    def change(self, settings: ListenerSettings) -> list[int]:
        """Apply changed address ``settings``; return the brokers whose old port was closed.

        A port that moves to another broker is closed first. All others stay open until the new port is bound; if it
        cannot be bound, clients keep using the old one.
        """
        self._settings = settings
        self.hosts.clear()
        self.hosts[settings.advertise.host.lower()] = None
        before = dict(self._ports)
        wanted = {at: node_id for node_id in self.told if (at := settings.bound(node_id)) is not None}
        for node_id, port in before.items():
            if wanted.get(port.at, node_id) != node_id:
                self._close(node_id)
        for node_id in list(self.told):
            self._bring(node_id)
        return [node_id for node_id, port in before.items() if self._ports.get(node_id) is not port]

    def try_again(self) -> None:
        for node_id in list(self._failures):
            self._bring(node_id)

    def tell_owners(self) -> None:
        """Advertise each broker's address at its owner of now."""
        for node_id in list(self.told):
            self._bring(node_id)
        if self._owners is not None and self._owners.are_known:
            self.accept_bootstrap()

    def open_bootstrap(self, sockets: Iterable[socket.socket]) -> None:
        """Accept connections from listening ``sockets`` of the bootstrap address, and own them.

        Until the owners of brokers are known they wait in the kernel, but not for long: the next instance may know.
        """
        self._bootstrap = list(sockets)
        if self._owners is None or self._owners.are_known:
            self.accept_bootstrap()
        else:
            later(_OWNERS_S, "open the bootstrap port", self.accept_bootstrap)

    def accept_bootstrap(self) -> None:
        """Accept connections that wait, if any may; if the listener has closed, close their sockets."""
        waiting, self._bootstrap = self._bootstrap, []
        if self._acceptor.open:
            self._acceptor.listen(waiting, None)
        else:
            self._acceptor.stop_listening(waiting)

    @property
    def without_port(self) -> list[int]:
        """The known brokers of this instance that no client of this listener can reach."""
        if self._settings.broker_host is not None:
            return []
        return [node_id for node_id in self.told if node_id not in self._ports and self._owns(node_id)]

    @property
    def why_not_ready(self) -> str | None:
        """Why no client of this listener can reach any broker; None when one can, or no broker is known yet."""
        missing = self.without_port
        if not missing or len(missing) < len(self.told):
            return None
        ids = _shown(missing)
        return f"no broker has a port here: make its brokers list the node ids {ids}, at free ports"

    def _owns(self, node_id: int) -> bool:
        return self._owners is None or self._owners.owns(node_id)

    def _bring(self, node_id: int) -> None:
        """Bind a broker's address according to the settings, and advertise it; or that at its owner.

        The port of another instance's broker is bound too: clients with an old address are turned away there, and when
        the broker comes here, its port is open. With several workers, each has the port, and one accepts at it.
        """
        settings = self._settings
        told, bound = settings.advertised(node_id), settings.bound(node_id)
        elsewhere = None if self._owners is None else self._owners.elsewhere(settings.name, node_id)
        if told is None or bound is None:
            self._close(node_id)
        elif settings.broker_host is not None:
            self.hosts[told.host.lower()] = node_id
        elif not self._listen(node_id, bound) and node_id in self._ports and elsewhere is None:
            return
        if elsewhere is not None:
            told = elsewhere
        elif told is None or bound is None:
            # A client that is told the broker's own address bypasses the proxy. This name never resolves (RFC 2606,
            # .invalid), tells the cause in the client's own log, and makes only this broker unreachable.
            told = Address(f"node-id-{node_id}-has-no-port-in-sluice.invalid", settings.bootstrap.port)
            log.error(
                "no port for broker: clients of this listener cannot reach it",
                listener=settings.name,
                broker=node_id,
                fix=f"add the node id to brokers of listener {settings.name}; SIGHUP loads it",
            )
        self.told[node_id] = (told.host.encode(), told.port)

    def _listen(self, node_id: int, at: Address) -> bool:
        """Bind a broker's port and close its previous one; return whether it is bound. While stopping, no port is
        bound.
        """
        has = self._ports.get(node_id)
        if has is not None and has.at == at:
            if self._acceptor.open:
                self._accept(node_id, has)
            return True
        if not self._acceptor.open:
            return False
        try:
            sockets = self._bind(at.host, at.port)
        except OSError as error:
            why = describe(error)
            if self._failures.get(node_id) != why:
                log.error(
                    "cannot listen for broker",
                    listener=self._settings.name,
                    broker=node_id,
                    port=at.port,
                    error=why,
                    meanwhile="its old port stays" if has is not None else "clients cannot reach it, trying again",
                )
            self._failures[node_id] = why
            return False
        self._close(node_id)
        self._ports[node_id] = port = _Port(at, sockets)
        self._accept(node_id, port)
        return True

    def _accept(self, node_id: int, port: _Port) -> None:
        """Accept at a port, or leave that to another worker."""
        if self._owners is None or self._owners.accepts(node_id):
            self._acceptor.listen(port.sockets, node_id)
        else:
            self._acceptor.leave(port.sockets)

    def _close(self, node_id: int) -> None:
        self._failures.pop(node_id, None)
        port = self._ports.pop(node_id, None)
        if port is not None:
            self._acceptor.stop_listening(port.sockets)


def _shown(node_ids: Iterable[int]) -> str:
    ordered = sorted(node_ids)
    more = f" and {len(ordered) - _MAX_SHOWN_IDS} more" if len(ordered) > _MAX_SHOWN_IDS else ""
    return ", ".join(map(str, ordered[:_MAX_SHOWN_IDS])) + more
