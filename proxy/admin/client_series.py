"""Metrics of clients, with or without a quota: all of their traffic, taken from their meters."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.core import Metric

from proxy.admin.exposition import Row, counter, gauge, number
from proxy.admin.series import NamedSeries
from proxy.runtime.names import label
from proxy.usage.meter import NO_TRAFFIC, ClientNames, ClientState, Traffic
from quotas.names import FOLDED


@dataclass(slots=True)
class ShownClient:
    """Series of one client at one listener, or of all clients there that share ``other``."""

    traffic: Traffic = NO_TRAFFIC
    connections: int = 0
    muted: int = 0
    """Muted clients: 0 or 1 for a single client."""


class ClientSeries:
    """The series of all clients, at most ``most`` of them by name: those with the most bytes first."""

    def __init__(self, most: int) -> None:
        self._series: NamedSeries[ClientNames, ShownClient] = NamedSeries(most, ShownClient, _other_of)

    @property
    def folded(self) -> int:
        """Clients in the last snapshot that are part of ``other``."""
        return self._series.folded

    def update(self, taken: Iterable[ClientState]) -> None:
        """Add the clients' traffic since the last snapshot; a client may occur more than once."""
        for _, shown in self._series:
            shown.connections = shown.muted = 0
        states: dict[ClientNames, ClientState] = {}
        for client, traffic, connections, is_throttled in taken:
            names = ClientNames(*map(label, client))
            before = states.get(names, ClientState(names, NO_TRAFFIC))
            states[names] = ClientState(
                names,
                before.traffic.plus(traffic),
                before.connections + connections,
                before.is_throttled or is_throttled,
            )
        self._series.assign({names: each.traffic.bytes_in + each.traffic.bytes_out for names, each in states.items()})
        for names, each in states.items():
            shown = self._series[names]
            if any(each.traffic):
                shown.traffic = shown.traffic.plus(each.traffic)
            shown.connections += each.connections
            shown.muted += each.is_throttled

    def __iter__(self) -> Iterator[tuple[ClientNames, ShownClient]]:
        """Yield every client with its series; ``other`` of each listener comes last, if it was ever used."""
        return iter(self._series)


def client_families(clients: ClientSeries) -> Iterator[Metric]:
    """Yield the families."""
    labels = ClientNames._fields

    def rows(value: Callable[[ShownClient], float]) -> Iterator[Row]:
        return ((names, value(shown)) for names, shown in clients)

    def by_direction(values: Callable[[Traffic], tuple[int, int]], *, zeros: bool) -> Iterator[Row]:
        for names, shown in clients:
            if zeros or any(values(shown.traffic)):
                for direction, value in zip(("in", "out"), values(shown.traffic), strict=True):
                    yield (direction, *names), value

    sizes = by_direction(lambda traffic: (traffic.bytes_in, traffic.bytes_out), zeros=True)
    yield counter("sluice_client_bytes", "Bytes of a client.", ("direction", *labels), sizes)
    exempt = by_direction(lambda traffic: (traffic.exempt_in, traffic.exempt_out), zeros=False)
    said = "Bytes among them of exempt clients, to which no quota applies."
    yield counter("sluice_client_exempt_bytes", said, ("direction", *labels), exempt)
    requests = rows(lambda shown: shown.traffic.requests)
    yield counter("sluice_client_requests", "Requests of a client.", labels, requests)
    opened = rows(lambda shown: shown.traffic.connections_opened)
    yield counter("sluice_client_connections_opened", "Connections opened by a client.", labels, opened)
    now = rows(lambda shown: shown.connections)
    yield gauge("sluice_client_connections", "Connections of a client open now.", labels, now)
    muted = rows(lambda shown: shown.muted)
    yield gauge("sluice_client_muted", "1 if a client is throttled now.", labels, muted)
    yield number("sluice_clients_folded", "Clients summed up as other, beyond the limit of named ones.", clients.folded)


def _other_of(client: ClientNames) -> ClientNames:
    return ClientNames(client.listener, FOLDED, FOLDED)
