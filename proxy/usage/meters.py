"""The meters of all clients, with or without a quota; read once an interval."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final

from proxy.runtime.tasks import SLICE
from proxy.usage.meter import NO_TRAFFIC, ClientNames, ClientState, Meter, MeterKey, Traffic
from quotas.names import FOLDED, OTHER, NameBudget, fold

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
        self._dropped: dict[int, Traffic] = {}
        """By broker, what was counted by meters that are not here any more."""

    def find(self, key: MeterKey) -> Meter:
        """Return the meter of a client, created on first use."""
        meter = self._meters.get(key)
        if meter is None:
            most = 0 if self._names.full else self._most
            key = fold(key, self._meters, most, key._replace(client_id=OTHER))
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

    def values(self) -> list[Meter]:
        return list(self._meters.values())

    def __getitem__(self, key: MeterKey) -> Meter:
        return self._meters[key]

    async def totals(self) -> dict[int, Traffic]:
        """Return what was counted by broker since the start; counts during the iteration may be missing."""
        totals = dict(self._dropped)
        for number, meter in enumerate(self.values(), 1):
            _add(totals, meter)
            if number % SLICE == 0:
                await asyncio.sleep(0)
        return totals

    def drop_unused(self, keys: Iterable[MeterKey]) -> None:
        """Drop those of the meters that no account holds: nothing can count on them any more.

        A meter without connections may still be held: when a connection has changed its client-id, answers for the old
        one may be under way.
        """
        for key in keys:
            if self._meters[key].holders:
                continue
            meter = self._meters.pop(key)
            self._names.give_back(key.user, key.client_id)
            _add(self._dropped, meter)
            if (traffic := meter.take_traffic()) != NO_TRAFFIC:
                client = fold(key.client, self._gone, MAX_GONE, ClientNames(key.listener, FOLDED, FOLDED))
                self._gone[client] = self._gone.get(client, NO_TRAFFIC).plus(traffic)

    def take_traffic(self, now_ms: int) -> Iterator[ClientState]:
        """Yield the traffic since the last call: of all meters (one per broker), then of those dropped.

        The iteration may pause at any point: clients that come or go meanwhile are counted exactly once.
        """
        for meter in self.values():
            yield ClientState(meter.key.client, meter.take_traffic(), meter.connections, meter.is_throttled(now_ms))
        gone, self._gone = self._gone, {}
        for client, traffic in gone.items():
            yield ClientState(client, traffic)


def _add(totals: dict[int, Traffic], meter: Meter) -> None:
    totals[meter.key.broker] = totals.get(meter.key.broker, NO_TRAFFIC).plus(meter.total)
