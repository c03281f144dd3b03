"""The meters of a worker: raised by its listeners, read by usage records and metrics."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from math import exp
from typing import Final

from config.usage import Usage
from proxy.runtime.clock import monotonic_s, now_ms, wall_s
from proxy.runtime.tasks import every, in_slices
from proxy.usage.accounts import Account, Accounts
from proxy.usage.addresses import Addresses
from proxy.usage.history import History, Minute
from proxy.usage.lately import IN_A_MINUTE, SAMPLE_MS
from proxy.usage.meter import NO_TRAFFIC, ClientNames, ClientState, Meter, MeterKey, Traffic
from proxy.usage.meters import Meters
from proxy.usage.records import Columns, Recorder
from quotas.engine import Engine
from quotas.exemptions import NOBODY, Exemptions

_MAX_CLIENTS: Final = 10_000
"""Limit of clients counted separately without usage records: metrics show fewer."""
_FORGET_EVERY_S: Final = 10.0
_LOAD_EVERY_S: Final = 15.0
_SAMPLE_EVERY_S: Final = SAMPLE_MS / 1000

_REQUEST_MS: Final = 0.019
_BYTE_MS: Final = 0.39e-6
"""Measured (docs/benchmarks.md): small requests, and bytes of large ones."""
_SMOOTHED_S: Final = 120.0


class Metering:
    """Creates the accounts of listeners; without ``usage`` they serve metrics only."""

    def __init__(self, usage: Usage | None, engine: Engine, exemptions: Exemptions = NOBODY) -> None:
        self._taken = usage is not None
        self._engine = engine
        self._exemptions = exemptions
        self._meters = Meters(usage.max_clients if usage is not None else _MAX_CLIENTS)
        self._loads = Loads()
        self.load: Mapping[int, float] = self._loads.of_brokers
        self._sampled_ms = now_ms()
        self._samples = 0
        self.history = History()
        """The last hour of the busiest clients."""
        self._listeners: list[Accounts] = []
        self.addresses = Addresses(usage.max_addresses) if usage is not None else None
        """Connections by address; None without usage records."""
        self._taking = asyncio.Lock()
        """Lock of usage records: the last ones come after those that are being taken."""
        self._recorder = Recorder(self._meters, self._listeners, engine, self.addresses)

    def accounts_of(self, listener: str) -> Accounts:
        accounts = Accounts(self._meters, self._engine, listener, self._exemptions)
        self._listeners.append(accounts)
        return accounts

    @property
    def clients(self) -> list[Meter]:
        """The meters of now, one for each listener, broker and client."""
        return self._meters.values()

    def account(self, key: MeterKey) -> Account | None:
        return next((found for each in self._listeners if (found := each.find(key)) is not None), None)

    def rates(self, meter: Meter, now_ms: int) -> tuple[float, float]:
        """Return a client's bytes in and out per second over the last ten seconds."""
        return meter.rates(now_ms - self._sampled_ms)

    def watch(self) -> None:
        """Take samples, and drop clients that are gone if no usage records do that."""
        every(_SAMPLE_EVERY_S, self._sample, "sample what clients do")
        if not self._taken:
            every(_FORGET_EVERY_S, self._forget, "forget clients that are gone")

    async def take_usage(self) -> AsyncIterator[Columns]:
        """Yield the rows of usage records since the last call, one document at a time."""
        async with self._taking:
            for columns in self._recorder.take(now_ms()):
                if columns is not None:
                    yield columns
                await asyncio.sleep(0)

    def watch_load(self, served: Callable[[], Collection[int]]) -> None:
        """Estimate the load of the brokers that are ``served`` here."""

        async def estimate() -> None:
            totals = await self._meters.totals()
            self._loads.update({broker: totals.get(broker, NO_TRAFFIC) for broker in served()}, monotonic_s())

        every(_LOAD_EVERY_S, estimate, "note the load of brokers")

    async def take_traffic(self) -> list[ClientState]:
        """Return the traffic since the last call by client; a client may occur more than once."""
        return await in_slices(self._meters.take_traffic(now_ms()))

    async def _sample(self) -> None:
        now = now_ms()
        elapsed_s, self._sampled_ms = max(now - self._sampled_ms, 1) / 1000, now
        await in_slices(self._sample_each(elapsed_s, now))
        self._samples += 1
        if self._samples % IN_A_MINUTE == 0:
            minutes: dict[ClientNames, Minute] = {}
            await in_slices(self._minutes(minutes))
            kept = await asyncio.to_thread(self.history.choose, minutes)
            await in_slices(self._ratios(minutes, kept, now))
            self.history.add(kept, minutes, wall_s() - 60)

    def _sample_each(self, elapsed_s: float, now: int) -> Iterator[None]:
        for meter in self._meters.values():
            meter.sample(elapsed_s, now)
            yield

    def _minutes(self, minutes: dict[ClientNames, Minute]) -> Iterator[None]:
        """Add up the last minute of each client that did anything."""
        for meter in self._meters.values():
            bytes_in, bytes_out, throttled_ms = (0, 0, 0) if meter.lately is None else meter.lately.take_minute()
            if bytes_in or bytes_out or throttled_ms:
                minute = minutes.setdefault(meter.key.client, Minute())
                minute.bytes_in += bytes_in
                minute.bytes_out += bytes_out
                minute.throttled_ms = max(minute.throttled_ms, throttled_ms)
            yield

    def _ratios(self, minutes: dict[ClientNames, Minute], kept: set[ClientNames], now: int) -> Iterator[None]:
        """Add how near the clients to keep are to a limit."""
        for key in self._meters:
            account = self.account(key) if key.client in kept else None
            state = None if account is None else account.nearest(now)
            if state is not None:
                minute = minutes.setdefault(key.client, Minute())
                minute.ratio = max(minute.ratio or 0.0, state.ratio or 0.0)
            yield

    async def _forget(self) -> None:
        async for _ in self.take_usage():
            pass


class Loads:
    """CPU ms a second by broker, as ``of_brokers``, estimated from requests and bytes."""

    def __init__(self) -> None:
        self.of_brokers: dict[int, float] = {}
        self._counted: Mapping[int, Traffic] = {}
        self._counted_s = 0.0

    def update(self, counted: Mapping[int, Traffic], now_s: float) -> None:
        """Take in what was counted since the start, by broker that is served here. The load of one is known after an
        interval; of one that is served elsewhere meanwhile, it is forgotten.
        """
        before, before_s = self._counted, self._counted_s
        self._counted, self._counted_s = counted, now_s
        loads = dict(self.of_brokers)
        self.of_brokers.clear()
        for broker in counted.keys() & before.keys():
            traffic = counted[broker].minus(before[broker])
            size = traffic.bytes_in + traffic.bytes_out
            load = max(_REQUEST_MS * traffic.requests + _BYTE_MS * size, 0.0) / (now_s - before_s)
            smoothed = loads.get(broker, load)
            self.of_brokers[broker] = load + (smoothed - load) * exp((before_s - now_s) / _SMOOTHED_S)


def protected_topics(usage: Usage | None) -> frozenset[bytes]:
    """Return the topics that clients may not produce to: usage records are what clients are billed by."""
    topic = usage.topic if usage is not None else None
    return frozenset((topic.name.encode(),)) if topic is not None and topic.protect else frozenset()
