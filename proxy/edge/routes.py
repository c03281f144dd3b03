"""Which way each listener's clients take to the brokers: most often one for all, sometimes one of a listener's own."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from config.cluster import Route
from config.settings import Listener as ListenerSettings
from config.settings import Settings
from proxy.brokers.cluster import Cluster
from proxy.runtime.faults import contained
from proxy.identity.delegation_tokens import TokenOwners
from proxy.edge.listeners import Listener


@dataclass(slots=True)
class Way:
    """The brokers as one of their own listeners shows them, and the listeners of ours that lead there."""

    cluster: Cluster
    owners: TokenOwners | None
    """Of delegation tokens; None without a login that could ask for them."""
    listeners: list[Listener] = field(default_factory=list)

    def owner_of(self, token_id: str, then: Callable[[str], None]) -> str | None:
        """Return the owner of a delegation token if he is known; if not, ``then`` is told when he is."""
        return None if self.owners is None else self.owners.owner(token_id, then)


class Routes:
    """One ``Way`` for each distinct route of the configuration that a listener uses."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._ways: dict[Route, Way] = {}

    def of(self, listener: ListenerSettings) -> Way:
        """Return the way of a listener, which others may share. Raises OSError where its TLS files cannot be loaded."""
        route = listener.cluster or self._settings.cluster
        if route not in self._ways:
            self._ways[route] = self._open(route, listener)
        return self._ways[route]

    @property
    def clusters(self) -> Iterator[Cluster]:
        return (way.cluster for way in self._ways.values())

    def reachable(self) -> dict[int, bool]:
        """Return by node id whether the last connection could be made, on every route that knows the broker."""
        reachable: dict[int, bool] = {}
        for cluster in self.clusters:
            for node_id, broker in cluster.brokers.items():
                reachable[node_id] = broker.reachable and reachable.get(node_id, True)
        return reachable

    def _open(self, route: Route, listener: ListenerSettings) -> Way:
        settings = self._settings.cluster
        cluster = Cluster(
            settings.name if listener.cluster is None else f"{settings.name} of listener {listener.name}",
            route,
            lambda node_id: self._open_broker(route, node_id),
            refresh_s=settings.refresh_s,
            connect_timeout_s=settings.connect_timeout_s,
            demands_sasl=any(
                each.authentication == "sasl"
                for each in self._settings.listeners
                if (each.cluster or settings) == route
            ),
        )
        return Way(cluster, TokenOwners(cluster) if route.sasl is not None else None)

    def _open_broker(self, route: Route, node_id: int) -> None:
        for listener in self._ways[route].listeners:
            contained("open a broker's port", listener.open_broker, node_id)
