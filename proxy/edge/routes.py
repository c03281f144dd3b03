"""Each listener's view of the cluster: usually one route for all, sometimes a listener has its own."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from config.cluster import Route
from config.settings import Listener as ListenerSettings
from config.settings import Settings
from protocol.errors import Cause
from proxy.brokers.cluster import Cluster
from proxy.brokers.known_brokers import KnownBrokers
from proxy.identity.delegation_tokens import TokenOwners
from proxy.runtime.faults import contained

if TYPE_CHECKING:
    from proxy.edge.listeners import Listener


@dataclass(slots=True)
class ClusterView:
    """The brokers as one of their own listeners shows them, and the listeners of ours that lead there."""

    cluster: Cluster
    owners: TokenOwners | None
    """Looks up owners of delegation tokens; None without a login that may describe them."""
    listeners: "list[Listener]" = field(default_factory=list)

    def owner_of(self, token_id: str, then: Callable[[str], None]) -> str | None:
        """Return the owner of a delegation token; if he is not known yet, None, and ``then`` is called once he is."""
        return None if self.owners is None else self.owners.owner(token_id, then)


class Routes:
    """One ``ClusterView`` for each distinct route that a listener uses."""

    def __init__(self, settings: Settings, on_refused: Callable[[Cause], None] = lambda _: None) -> None:
        """``on_refused``: as of ``Cluster``."""
        self._settings = settings
        self._on_refused = on_refused
        self._views: dict[Route, ClusterView] = {}

    def of(self, listener: ListenerSettings) -> ClusterView:
        """Return a listener's view. Raises OSError if its TLS files cannot be loaded."""
        route = listener.cluster or self._settings.cluster
        if route not in self._views:
            self._views[route] = self._open(route, listener)
        return self._views[route]

    @property
    def clusters(self) -> Iterator[Cluster]:
        return (view.cluster for view in self._views.values())

    @property
    def node_ids(self) -> set[int]:
        return {node_id for cluster in self.clusters for node_id in cluster.brokers}

    def remember(self, known: Iterable[KnownBrokers]) -> None:
        """Add brokers known from before, or from another worker; their ports open at once."""
        for cluster in self.clusters:
            for each in known:
                if each.bootstrap == cluster.bootstrap:
                    cluster.remember(each)

    def reachable(self) -> dict[int, bool]:
        """Return node id → whether the last connection succeeded, on every route that knows the broker."""
        reachable: dict[int, bool] = {}
        for cluster in self.clusters:
            for node_id, broker in cluster.brokers.items():
                if not broker.named and (cluster.can_ask or broker.is_hint):
                    continue  # nobody but a client, or a file, says that it is there
                reachable[node_id] = broker.reachable and reachable.get(node_id, True)
        return reachable

    def _open(self, route: Route, listener: ListenerSettings) -> ClusterView:
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
            on_refused=self._on_refused,
        )
        return ClusterView(cluster, TokenOwners(cluster) if route.sasl is not None else None)

    def _open_broker(self, route: Route, node_id: int) -> None:
        for listener in self._views[route].listeners:
            contained("open a broker's port", listener.open_broker, node_id)
