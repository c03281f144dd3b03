"""Series of clients, with or without a quota: all of their traffic, taken from their meters."""

from collections.abc import Iterable, Iterator

from proxy.admin.named_series import NamedSeries
from proxy.runtime.names import label
from proxy.usage.meter import ClientNames, ClientState, Traffic
from quotas.folding import FOLDED


class ShownClient:
    """Series of one client at one listener, or of all clients there that share ``other``."""

    __slots__ = ("connections", "muted", "traffic")

    def __init__(self) -> None:
        self.traffic = Traffic()
        self.forget()

    def forget(self) -> None:
        """Reset the gauges, which hold for one snapshot only."""
        self.connections = 0
        self.muted = 0
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
            shown.forget()
        states: dict[ClientNames, ClientState] = {}
        for client, traffic, connections, is_throttled in taken:
            names = ClientNames(label(client.listener), label(client.user), label(client.client_id))
            before = states.get(names, ClientState(names, Traffic()))
            states[names] = ClientState(
                names,
                before.traffic.plus(traffic),
                before.connections + connections,
                before.is_throttled or is_throttled,
            )
        self._series.assign({names: each.traffic.bytes_in + each.traffic.bytes_out for names, each in states.items()})
        for names, each in states.items():
            shown = self._series[names]
            shown.traffic = shown.traffic.plus(each.traffic)
            shown.connections += each.connections
            shown.muted += each.is_throttled

    def __iter__(self) -> Iterator[tuple[ClientNames, ShownClient]]:
        """Yield every client with its series; ``other`` of each listener comes last, if it was ever used."""
        return iter(self._series)


def _other_of(client: ClientNames) -> ClientNames:
    return ClientNames(client.listener, FOLDED, FOLDED)
