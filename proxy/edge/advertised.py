"""What the clients of one listener are told instead of brokers' addresses: for each a port, or a host name (SNI)."""

from typing import Final

import structlog

from config.settings import Listener as ListenerSettings
from proxy.brokers.failures import describe
from proxy.edge.accepting import Acceptor
from proxy.edge.listening import Bind

log = structlog.get_logger("sluice.listener")

_MAX_SHOWN_IDS: Final = 10


class Advertised:
    """The addresses of a listener, one for each broker; the ports among them are bound when they are first told."""

    def __init__(self, settings: ListenerSettings, acceptor: Acceptor, bind: Bind) -> None:
        self._settings = settings
        self._acceptor = acceptor
        self._bind = bind
        self.hosts: dict[str, int | None] = {settings.advertise.lower(): None}
        """What clients name in TLS (SNI): with one port for all brokers, it says which of them they want."""
        self.told: dict[int, tuple[bytes, int]] = {}
        """Host and port by node id."""
        self._served: set[int] = set()
        """Those of them that clients can come to."""

    def open(self, node_id: int) -> None:
        """Be there for ``node_id``: its address takes connections when this returns.

        While the proxy is stopping nobody listens any more, but what clients are told is the same: the next one will.
        """
        if node_id in self.told:
            return
        settings = self._settings
        if settings.broker_host is not None:
            host = settings.broker_host.replace("{node_id}", str(node_id))
            self.hosts[host.lower()] = node_id
            self._served.add(node_id)
            self.told[node_id] = (host.encode(), settings.bind.port)
            return
        port = settings.brokers.port_of(node_id) if settings.brokers is not None else None
        if port is None:
            # A client that is told the broker's own address escapes. A name that says what is missing stands in
            # the client's own log, and only this broker cannot be reached (RFC 2606: .invalid never resolves).
            self.told[node_id] = (f"node-id-{node_id}-has-no-port-in-sluice.invalid".encode(), settings.bind.port)
            log.error(
                "no port for broker: clients of this listener cannot reach it",
                listener=settings.name,
                broker=node_id,
                fix=f"add the node id to brokers of listener {settings.name}",
            )
            return
        try:
            if self._acceptor.open:
                self._acceptor.listen(self._bind(settings.bind.host, port), node_id)
        except OSError as error:
            log.error(
                "cannot listen for broker", listener=settings.name, broker=node_id, port=port, error=describe(error)
            )
        else:
            self._served.add(node_id)
        self.told[node_id] = (settings.advertise.encode(), port)

    @property
    def why_not_ready(self) -> str | None:
        """Why no client of this listener can reach any broker; None when one can, or no broker is known yet."""
        if self._served or not self.told:
            return None
        ids = ", ".join(map(str, sorted(self.told)[:_MAX_SHOWN_IDS]))
        more = "" if len(self.told) <= _MAX_SHOWN_IDS else f" and {len(self.told) - _MAX_SHOWN_IDS} more"
        return f"no broker has a port here: see that its brokers name the node ids {ids}{more}, at ports that are free"
