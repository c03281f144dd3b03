"""What the series of clients say, with or without a quota: all their traffic, as their meters hand it over."""

from collections.abc import Iterable, Iterator

from proxy.admin.places import Places
from proxy.runtime.names import label
from proxy.usage.meter import Client, ClientState, Traffic
from quotas.counted import FOLDED


class ShownClient:
    """One client at one listener, or all those without a place there."""

    __slots__ = ("connections", "muted", "traffic")

    def __init__(self) -> None:
        self.traffic = Traffic()
        self.forget()

    def forget(self) -> None:
        """Empty the gauges: they hold for one snapshot only."""
        self.connections = 0
        self.muted = 0
        """Clients that are muted: of one, 1 or 0."""


class ClientSeries:
    """The series of all clients, at most ``max_entities`` of them by name: those with the most bytes first."""

    def __init__(self, max_entities: int) -> None:
        self._places: Places[Client, ShownClient] = Places(max_entities, ShownClient, _other_of)

    @property
    def folded(self) -> int:
        """Clients of the last snapshot that are shown as ``other``."""
        return self._places.folded

    def update(self, taken: Iterable[ClientState]) -> None:
        """Take over what clients had since the last snapshot, of some of them more than once."""
        for _, shown in self._places:
            shown.forget()
        states: dict[Client, ClientState] = {}
        for client, traffic, connections, is_muted in taken:
            names = Client(label(client.listener), label(client.user), label(client.client_id))
            before = states.get(names, ClientState(names, Traffic()))
            states[names] = ClientState(
                names,
                before.traffic.plus(traffic),
                before.connections + connections,
                before.is_muted or is_muted,
            )
        self._places.seat({names: each.traffic.bytes_in + each.traffic.bytes_out for names, each in states.items()})
        for names, each in states.items():
            shown = self._places[names]
            shown.traffic = shown.traffic.plus(each.traffic)
            shown.connections += each.connections
            shown.muted += each.is_muted

    def __iter__(self) -> Iterator[tuple[Client, ShownClient]]:
        """Every client with all that it had; ``other`` of each listener comes last, once there was need of it."""
        return iter(self._places)


def _other_of(client: Client) -> Client:
    return Client(client.listener, FOLDED, FOLDED)
