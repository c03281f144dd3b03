"""Meters: counters of one client's usage since the last usage record, raised by its sessions.

Counting is adding to an int; derived figures are computed when a record is taken (docs/usage-records.md).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from operator import add, sub
from typing import Final, NamedTuple

from proxy.usage.kind_usage import (
    BY_CAPS,
    BY_HAND,
    CHARGED,
    IN_SHADOW,
    NO_LIMIT,
    NO_THROTTLES,
    NOTHING,
    Figures,
    KindUsage,
    Limit,
    Row,
    Throttles,
)
from proxy.usage.lately import NOW_MS, Lately
from quotas.entities import Entity
from quotas.kinds import QuotaKind


class ClientNames(NamedTuple):
    """A client by its names, and the listener that it used."""

    listener: str
    user: str
    client_id: str


class MeterKey(NamedTuple):
    """The key of a meter. ``client_id`` "" also means no client-id; ``broker`` -1: not known yet."""

    listener: str
    broker: int
    user: str
    client_id: str
    exempt: bool = False
    """Traffic to which no quota applies."""

    @property
    def client(self) -> ClientNames:
        return ClientNames(self.listener, self.user, self.client_id)


class Traffic(NamedTuple):
    """Bytes with size fields, requests and connections; and the bytes to which no quota applies."""

    bytes_in: int = 0
    bytes_out: int = 0
    requests: int = 0
    connections_opened: int = 0
    exempt_in: int = 0
    exempt_out: int = 0

    def plus(self, other: "Traffic") -> "Traffic":
        return Traffic(*map(add, self, other))

    def minus(self, other: "Traffic") -> "Traffic":
        return Traffic(*map(sub, self, other))


NO_TRAFFIC: Final = Traffic()


class ClientState(NamedTuple):
    """A client's traffic since the last call, and its current state."""

    client: ClientNames
    traffic: Traffic
    connections: int = 0
    is_throttled: bool = False


@dataclass(slots=True, eq=False)
class Meter:
    """A client's usage through one listener at one broker.

    The hot path adds to its attributes directly: two additions for each request and each answer.
    """

    key: MeterKey
    produce_requests: int = 0
    produce_bytes: int = 0
    """Sizes of Produce requests as charged: without the size field."""
    fetch_requests: int = 0
    fetch_bytes: int = 0
    """Sizes of Fetch responses as charged."""
    other_requests: int = 0
    """All requests but Produce."""
    other_bytes: int = 0
    """Their sizes, size fields included."""
    bytes_out: int = 0
    request_time_ms: int = 0
    connections: int = 0
    connections_opened: int = 0
    past: Traffic = NO_TRAFFIC
    """The traffic in the records taken before."""
    shown: Traffic = NO_TRAFFIC
    """The traffic that ``take_traffic`` has returned."""
    lately: Lately | None = None
    """Samples, from the first traffic on."""
    kinds: dict[QuotaKind, KindUsage] = field(default_factory=dict)
    """Counters by kind, from the first throttle, charge or limit on; usually none."""
    limits: tuple[Limit, Limit] = (NO_LIMIT, NO_LIMIT)
    """The limits of BY_HAND as of ``generation`` of the engine."""
    name_bytes: int = 0
    """The most bytes that the names in a row take, rules included."""
    generation: int = -1
    holders: int = 0
    """Accounts that may still count here."""

    def use_of(self, kind: QuotaKind) -> KindUsage:
        """Return what is counted of a kind: always the same object."""
        usage = self.kinds.get(kind)
        if usage is None:
            usage = self.kinds[kind] = KindUsage()
        return usage

    def count_throttle(
        self, kind: QuotaKind, throttle_ms: int, now_ms: int, at_ms: int | None = None, cap: Entity | None = None
    ) -> None:
        """Count a throttle of a request of this client, given by ``cap`` or by its limit; ``at_ms``: when it began, if
        not now.
        """
        self._throttles().count(throttle_ms, now_ms, at_ms)
        for throttles in self.use_of(kind).throttles_under(cap):
            throttles.count(throttle_ms, now_ms, at_ms)

    def count_wait(
        self, kind: QuotaKind, change: int, now_ms: int, waited_ms: int = 0, cap: Entity | None = None
    ) -> None:
        """Count one more request of this client that waits, or one fewer, which has waited ``waited_ms``."""
        self._throttles().count_wait(change, now_ms, waited_ms)
        for throttles in self.use_of(kind).throttles_under(cap):
            throttles.count_wait(change, now_ms, waited_ms)

    def count_shadow(self, kind: QuotaKind, throttle_ms: int, now_ms: int, at_ms: int) -> None:
        """Count a throttle that a limit in shadow would have given from ``at_ms`` on."""
        self.use_of(kind).in_shadow.count(throttle_ms, now_ms, at_ms)

    def _throttles(self) -> Throttles:
        """Return the throttles of all kinds together."""
        lately = self.lately
        if lately is None:
            lately = self.lately = Lately()
        if lately.throttles is None:
            lately.throttles = Throttles()
        return lately.throttles

    @property
    def active(self) -> bool:
        """Something was counted since the last record, or a mute may be under way."""
        return bool(
            self.produce_requests
            or self.other_requests
            or self.bytes_out
            or self.other_bytes
            or self.connections_opened
            or any(usage.active for usage in self.kinds.values())
        )

    @property
    def counted(self) -> Traffic:
        """The traffic since the last record."""
        bytes_in = self.produce_bytes + 4 * self.produce_requests + self.other_bytes
        requests = self.produce_requests + self.other_requests
        exempt = (bytes_in, self.bytes_out) if self.key.exempt else (0, 0)
        return Traffic(bytes_in, self.bytes_out, requests, self.connections_opened, *exempt)

    def take_traffic(self) -> Traffic:
        """Return the traffic since the last call, independent of when records are taken."""
        before, self.shown = self.shown, self.total
        return self.shown.minus(before)

    def is_throttled(self, now_ms: int) -> bool:
        return any(not usage.throttles.over(now_ms - NOW_MS) for usage in self.kinds.values())

    @property
    def total(self) -> Traffic:
        """The traffic since the start."""
        return self.past.plus(self.counted)

    def sample(self, elapsed_s: float, now_ms: int) -> None:
        """Take a sample of what was counted since the last one, if anything ever was."""
        total = self.total
        if self.lately is None and (total.bytes_in or total.bytes_out):
            self.lately = Lately()
        if self.lately is not None:
            self.lately.sample(total.bytes_in, total.bytes_out, elapsed_s, now_ms)

    def rates(self, since_ms: int) -> tuple[float, float]:
        """Return bytes in and out per second over ten seconds; the last sample was ``since_ms`` ago."""
        total = self.total
        return (self.lately or Lately()).rates(total.bytes_in, total.bytes_out, since_ms)

    def throttled_share(self, now_ms: int) -> float:
        """Return the share of the last minute in which it was throttled, as far as that has been counted."""
        return (self.lately or Lately()).throttled_share(now_ms)

    def take(self, now_ms: int, describe: Callable[[Entity], str] = Entity.describe) -> tuple[Row, Figures]:
        """Return a row in the order of ``proxy.usage.records.COLUMNS``, and figures of further columns; reset the
        counters. ``describe`` names rules.
        """
        throttles: dict[QuotaKind, Row] = dict.fromkeys(BY_HAND, NO_THROTTLES)
        optional: Figures = {}
        for kind, usage in self.kinds.items():
            figures = usage.take(now_ms)
            if kind in throttles:
                throttles[kind] = figures[-len(NO_THROTTLES) :]
            else:
                optional[CHARGED[kind]] = figures
            optional[IN_SHADOW[kind]] = (usage.shadow_limit, *usage.in_shadow.take(now_ms))
            optional[BY_CAPS[kind]] = usage.take_caps(now_ms, describe)
        listener, broker, user, client_id, _ = self.key
        counted = self.counted
        produce, fetch = self.limits
        row: list[object] = [listener, broker, user, client_id]
        row += counted.bytes_in, self.bytes_out, counted.requests, self.request_time_ms
        row += self.connections, self.connections_opened, 0
        row += self.produce_bytes, self.produce_requests, *produce
        row += self.fetch_bytes, self.fetch_requests, *fetch
        for each in throttles.values():
            row += each
        self.past = self.past.plus(counted)
        self.produce_requests = self.produce_bytes = self.fetch_requests = self.fetch_bytes = 0
        self.other_requests = self.other_bytes = self.bytes_out = self.request_time_ms = self.connections_opened = 0
        return tuple(row), {names: figures for names, figures in optional.items() if figures != NOTHING[names]}
