"""The meters of a worker: for its listeners to count on, and for others to take what they have counted."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from config.usage import Usage
from proxy.runtime.clock import now_ms
from proxy.runtime.slices import in_slices
from proxy.runtime.tasks import every
from proxy.usage.accounts import Accounts
from proxy.usage.addresses import Addresses
from proxy.usage.meter import ClientState
from proxy.usage.meters import Meters
from proxy.usage.records import Columns, Recorder
from quotas.engine import Engine
from quotas.exemptions import NOBODY, Exemptions

_MAX_CLIENTS: Final = 10_000
"""Clients that are told apart where no records are taken: metrics show fewer."""
_SWEEP_EVERY_S: Final = 10.0


class Metering:
    """Accounts for the listeners; without ``usage`` they are for metrics."""

    def __init__(self, usage: Usage | None, engine: Engine, exemptions: Exemptions = NOBODY) -> None:
        self._taken = usage is not None
        self._engine = engine
        self._exemptions = exemptions
        self._meters = Meters(usage.max_clients if usage is not None else _MAX_CLIENTS)
        self._listeners: list[tuple[str, Accounts]] = []
        self.addresses = Addresses(usage.max_addresses) if usage is not None else None
        """Who connected; None where no records are taken."""
        self._recorder = Recorder(self._meters, self._listeners, engine, self.addresses)

    def accounts_of(self, listener: str) -> Accounts:
        """Return the accounts of a listener's clients."""
        accounts = Accounts(self._meters, self._engine, listener, self._exemptions)
        self._listeners.append((listener, accounts))
        return accounts

    def watch(self) -> None:
        """Forget clients that are gone, where nobody takes records."""
        if not self._taken:
            every(_SWEEP_EVERY_S, self._sweep, "forget clients that are gone")

    async def take_usage(self) -> AsyncIterator[Columns]:
        """Yield what usage records say since this was called last, a document's at a time."""
        for columns in self._recorder.take(now_ms()):
            if columns is not None:
                yield columns
            await asyncio.sleep(0)

    async def take_traffic(self) -> list[ClientState]:
        """Return what went through since this was called last, by client, of some of them more than once."""
        return await in_slices(self._meters.take_traffic(now_ms()))

    async def _sweep(self) -> None:
        await in_slices(self._meters.sweep(now_ms()))


def protected_topics(usage: Usage | None) -> frozenset[bytes]:
    """Return the topics that no client may produce to: whoever writes usage records writes the bill."""
    topic = usage.topic if usage is not None else None
    return frozenset((topic.name.encode(),)) if topic is not None and topic.protect else frozenset()
