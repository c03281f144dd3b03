"""The meters of all clients, taken once an interval. Every client has one, with or without a quota."""

from collections.abc import Iterable, Iterator
from typing import Final

from proxy.usage.meter import NO_TRAFFIC, Client, ClientState, Meter, MeterKey, Traffic
from quotas.counted import FOLDED
from quotas.names import OTHER, NameBudget

MAX_GONE = 10_000
"""Clients whose meters are gone, and whose last traffic nobody has taken yet, by name; the others are summed up."""

_NAME_BYTES_EACH: Final = 512
"""What the names of one client may take, on average, in memory."""


class Meters:
    """The meters of a worker. ``most`` bounds them, and what their names take: clients beyond share one for each user,
    listener and broker.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._names = NameBudget(most * _NAME_BYTES_EACH)
        self._meters: dict[MeterKey, Meter] = {}
        self._gone: dict[Client, Traffic] = {}

    def find(self, key: MeterKey) -> Meter:
        """Return the meter of a client."""
        meter = self._meters.get(key)
        if meter is None and (len(self._meters) >= self._most or self._names.full):
            key = key._replace(client_id=OTHER)
            meter = self._meters.get(key)
        if meter is None:
            meter = self._meters[key] = Meter(key)
            self._names.take(key.user, key.client_id)
        return meter

    def __len__(self) -> int:
        return len(self._meters)

    def __bool__(self) -> bool:
        return bool(self._meters)

    def __iter__(self) -> Iterator[MeterKey]:
        return iter(list(self._meters))

    def __getitem__(self, key: MeterKey) -> Meter:
        return self._meters[key]

    def drop_unused(self, keys: Iterable[MeterKey]) -> None:
        """Of these meters, forget those of which no account is held: nothing can be counted on them any more.

        No count of connections says as much: of a client-id that a connection has left for another, answers may still
        be under way.
        """
        for key in keys:
            if not self._meters[key].holders:
                self._let_go(self._meters.pop(key))
                self._names.give_back(key.user, key.client_id)

    def _let_go(self, meter: Meter) -> None:
        traffic = meter.take_traffic()
        if traffic == NO_TRAFFIC:
            return
        client = Client(meter.key.listener, meter.key.user, meter.key.client_id)
        if client not in self._gone and len(self._gone) >= MAX_GONE:
            client = Client(client.listener, FOLDED, FOLDED)
        self._gone[client] = self._gone.get(client, NO_TRAFFIC).plus(traffic)

    def take_traffic(self, now_ms: int) -> Iterator[ClientState]:
        """Yield what went through since it was taken last, of all meters (one for each broker), then of those gone.

        It may be left off in between for as long as one likes: what comes or goes meanwhile is counted once, too.
        """
        for meter in list(self._meters.values()):
            client = Client(meter.key.listener, meter.key.user, meter.key.client_id)
            yield ClientState(client, meter.take_traffic(), meter.connections, meter.is_muted(now_ms))
        gone, self._gone = self._gone, {}
        for client, traffic in gone.items():
            yield ClientState(client, traffic)

    def sweep(self, now_ms: int) -> Iterator[None]:
        """Forget the meters on which nothing has been counted since the last sweep; yields after each.

        To be called now and then where nobody takes records.
        """
        for key in self:
            if self._meters[key].active:
                self._meters[key].take_shadows(now_ms)
                self._meters[key].take_caps(now_ms)
                self._meters[key].take(now_ms)
            else:
                self.drop_unused((key,))
            yield None
