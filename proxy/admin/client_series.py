"""What the series of clients say, with or without a quota: all their traffic, as their meters hand it over."""

from collections.abc import Iterable, Iterator

from proxy.admin.places import OTHER, Names, Places
from proxy.runtime.names import label
from proxy.usage.meters import Traffic


class _Totals:
    __slots__ = ("traffic",)

    def __init__(self) -> None:
        self.traffic = Traffic()


class ClientSeries:
    """The series of all clients, at most ``max_entities`` of them by name: those with the most bytes first."""

    def __init__(self, max_entities: int) -> None:
        self._places: Places[_Totals] = Places(max_entities, _Totals)

    @property
    def folded(self) -> int:
        """Clients of the last snapshot that are shown as ``other``."""
        return self._places.folded

    def update(self, taken: Iterable[tuple[str, str, Traffic]]) -> None:
        """Take over (user, client-id, what it had since the last snapshot), of some of them more than once."""
        shown: dict[Names, Traffic] = {}
        for user, client_id, traffic in taken:
            names = Names(label(user), label(client_id))
            shown[names] = shown.get(names, Traffic()).plus(traffic)
        self._places.seat({names: traffic.bytes_in + traffic.bytes_out for names, traffic in shown.items()})
        for names, traffic in shown.items():
            totals = self._places[names]
            totals.traffic = totals.traffic.plus(traffic)

    def __iter__(self) -> Iterator[tuple[Names, Traffic]]:
        """Every client with all that it had; ``other`` comes last, once there was need of it."""
        for names, totals in self._places:
            if names != OTHER or totals.traffic.requests:
                yield names, totals.traffic
