"""Metrics of clients, with or without a quota: all of their traffic, taken from their meters."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

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
        states = [each._replace(client=ClientNames(*map(label, each.client))) for each in taken]
        demand = Counter[ClientNames]()
        for client, traffic, *_ in states:
            demand[client] += traffic.bytes_in + traffic.bytes_out
        self._series.assign({client: (0, size) for client, size in demand.items()})
        for client, traffic, connections, _ in states:
            shown = self._series[client]
            if any(traffic):
                shown.traffic = shown.traffic.plus(traffic)
            shown.connections += connections
        for client in {each.client for each in states if each.is_throttled}:
            self._series[client].muted += 1

    def __iter__(self) -> Iterator[tuple[ClientNames, ShownClient]]:
        """Yield every client with its series; ``other`` of each listener comes last, if it was ever used."""
        return iter(self._series)


def client_families(clients: ClientSeries) -> Iterator[Metric]:
    labels = ClientNames._fields

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
    for family, name, said, value in _FAMILIES:
        yield family(name, said, labels, ((names, value(shown)) for names, shown in clients))
    yield number("sluice_clients_folded", "Clients summed up as other, beyond the limit of named ones.", clients.folded)


_FAMILIES: Final[Sequence[tuple[Callable[..., Metric], str, str, Callable[[ShownClient], float]]]] = (
    (counter, "sluice_client_requests", "Requests of a client.", lambda shown: shown.traffic.requests),
    (
        counter,
        "sluice_client_connections_opened",
        "Connections opened by a client.",
        lambda shown: shown.traffic.connections_opened,
    ),
    (gauge, "sluice_client_connections", "Connections of a client open now.", lambda shown: shown.connections),
    (gauge, "sluice_client_muted", "1 if a client is throttled now.", lambda shown: shown.muted),
)


def _other_of(client: ClientNames) -> ClientNames:
    return ClientNames(client.listener, FOLDED, FOLDED)
