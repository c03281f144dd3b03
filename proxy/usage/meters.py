"""The meters of all clients, with or without a quota; read once an interval."""

from collections.abc import Iterable, Iterator
from typing import Final

from proxy.usage.meter import NO_TRAFFIC, ClientNames, ClientState, Meter, MeterKey, Traffic
from quotas.counted import FOLDED
from quotas.names import OTHER, NameBudget

MAX_GONE = 10_000
"""Clients without a meter any more whose last traffic is still to be taken by name; the others are summed up."""

_NAME_BYTES_EACH: Final = 512
"""Average memory for the names of one client."""


class Meters:
    """The meters of a worker. ``most`` limits their number and the memory of their names: clients beyond it share one
    meter per user, listener and broker.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._names = NameBudget(most * _NAME_BYTES_EACH)
        self._meters: dict[MeterKey, Meter] = {}
        self._gone: dict[ClientNames, Traffic] = {}

    def find(self, key: MeterKey) -> Meter:
        """Return the meter of a client, created on first use."""
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
        """Drop those of the meters that no account holds: nothing can count on them any more.

        A meter without connections may still be held: when a connection has changed its client-id, answers for the old
        one may be under way.
        """
        for key in keys:
            if not self._meters[key].holders:
                self._let_go(self._meters.pop(key))
                self._names.give_back(key.user, key.client_id)

    def _let_go(self, meter: Meter) -> None:
        traffic = meter.take_traffic()
        if traffic == NO_TRAFFIC:
            return
        client = ClientNames(meter.key.listener, meter.key.user, meter.key.client_id)
        if client not in self._gone and len(self._gone) >= MAX_GONE:
            client = ClientNames(client.listener, FOLDED, FOLDED)
        self._gone[client] = self._gone.get(client, NO_TRAFFIC).plus(traffic)

    def take_traffic(self, now_ms: int) -> Iterator[ClientState]:
        """Yield the traffic since the last call: of all meters (one per broker), then of those dropped.

        The iteration may pause at any point: clients that come or go meanwhile are counted exactly once.
        """
        for meter in list(self._meters.values()):
            client = ClientNames(meter.key.listener, meter.key.user, meter.key.client_id)
            yield ClientState(client, meter.take_traffic(), meter.connections, meter.is_muted(now_ms))
        gone, self._gone = self._gone, {}
        for client, traffic in gone.items():
            yield ClientState(client, traffic)

    def sweep(self, now_ms: int) -> Iterator[None]:
        """Drop the meters on which nothing was counted since the last sweep; yields after each.

        To be called now and then if there are no usage records.
        """
        for key in self:
            if self._meters[key].active:
                self._meters[key].take_shadows(now_ms)
                self._meters[key].take_caps(now_ms)
                self._meters[key].take(now_ms)
            else:
                self.drop_unused((key,))
            yield None
