"""Meters: counters of one client's usage since the last usage record, raised by its sessions.

Counting is adding to an int; derived figures are computed when a record is taken (docs/usage-records.md).
"""

from typing import Final, NamedTuple

from proxy.usage.by_kind import (
    NO_CAPS,
    NO_NAMES,
    NO_SHADOWS,
    NO_THROTTLES,
    NOTHING_FURTHER,
    ByKind,
    Caps,
    Further,
    KindUsage,
    Shadows,
)
from proxy.usage.lately import MINUTES, NO_SHARES, NOW_MS, SAMPLE_MS, Lately, Shares
from proxy.usage.throttles import Throttles
from quotas.entities import Entity
from quotas.kinds import QuotaKind


class MeterKey(NamedTuple):
    """The key of a meter. ``client_id`` "" also means no client-id; ``broker`` -1: not known yet."""

    listener: str
    broker: int
    user: str
    client_id: str
    exempt: bool = False
    """Traffic to which no quota applies."""


class Traffic(NamedTuple):
    """Bytes with size fields, requests and connections; and the bytes to which no quota applies."""

    bytes_in: int = 0
    bytes_out: int = 0
    requests: int = 0
    connections_opened: int = 0
    exempt_in: int = 0
    exempt_out: int = 0

    def plus(self, other: "Traffic") -> "Traffic":
        return Traffic(
            self.bytes_in + other.bytes_in,
            self.bytes_out + other.bytes_out,
            self.requests + other.requests,
            self.connections_opened + other.connections_opened,
            self.exempt_in + other.exempt_in,
            self.exempt_out + other.exempt_out,
        )


NO_TRAFFIC: Final = Traffic()


class ClientNames(NamedTuple):
    """A client by its names, and the listener that it used."""

    listener: str
    user: str
    client_id: str


class ClientState(NamedTuple):
    """A client's traffic since the last call, and its current state."""

    client: ClientNames
    traffic: Traffic
    connections: int = 0
    is_throttled: bool = False


Limit = tuple[float | None, str | None, str | None, str | None]
"""A limit, its rule, and the user and client-id of its counter (``by_kind.Names``)."""
NO_LIMIT: Final[Limit] = (None, *NO_NAMES)


class Meter:
    """A client's usage through one listener at one broker.

    The hot path adds to its attributes directly: two additions for each request and each answer.
    """

    __slots__ = (
        "by_kind",
        "bytes_out",
        "connections",
        "connections_opened",
        "fetch_bytes",
        "fetch_requests",
        "generation",
        "holders",
        "key",
        "lately",
        "limits",
        "name_bytes",
        "other_bytes",
        "other_requests",
        "past_in",
        "past_out",
        "produce_bytes",
        "produce_requests",
        "request_time_ms",
        "throttles",
        "unshown",
    )

    def __init__(self, key: MeterKey) -> None:
        self.key = key
        self.produce_requests = 0
        self.produce_bytes = 0
        """Sizes of Produce requests as charged: without the size field."""
        self.fetch_requests = 0
        self.fetch_bytes = 0
        """Sizes of Fetch responses as charged."""
        self.other_requests = 0
        """All requests but Produce."""
        self.other_bytes = 0
        """Their sizes, size fields included."""
        self.bytes_out = 0
        self.request_time_ms = 0
        self.connections = 0
        self.connections_opened = 0
        self.past_in = self.past_out = 0
        """Bytes in the records taken before."""
        self.lately: Lately | None = None
        """Samples, from the first traffic on."""
        self.throttles: Throttles | None = None
        """Throttles of all kinds together since the last sample; None unless there were some lately."""
        self.by_kind: ByKind | None = None
        """Throttles of all kinds, and the figures of kinds without an attribute here; usually None."""
        self.limits: tuple[Limit, Limit] = (NO_LIMIT, NO_LIMIT)
        """The limits as of ``generation`` of the engine."""
        self.name_bytes = 0
        """The most bytes that the names in a row take, rules included."""
        self.generation = -1
        self.holders = 0
        """Accounts that may still count here."""
        self.unshown = NO_TRAFFIC
        """Traffic for ``take_traffic`` in addition to the current counters; negative as far as it has returned those
        already."""

    def count_throttle(self, kind: QuotaKind, throttle_ms: int, now_ms: int, at_ms: int | None = None) -> None:
        """Count a throttle of a request of this client; ``at_ms``: when it began, if not now."""
        self._by_kind().throttles_of(kind).note(throttle_ms, now_ms, at_ms)
        self._throttles().note(throttle_ms, now_ms, at_ms)

    def count_shadow(self, kind: QuotaKind, throttle_ms: int, now_ms: int, at_ms: int) -> None:
        """Count a throttle that a limit in shadow would have given from ``at_ms`` on."""
        self._by_kind().shadow_of(kind).note(throttle_ms, now_ms, at_ms)

    def set_shadow_limits(self, limits: dict[QuotaKind, float]) -> None:
        """Set the limits that are measured without being enforced."""
        if limits or self.by_kind is not None:
            self._by_kind().shadow_limits = limits

    def count_cap(self, kind: QuotaKind, rule: Entity, throttle_ms: int, now_ms: int, at_ms: int | None = None) -> None:
        """Count a throttle given by a cap; it is counted with the other throttles too."""
        self._by_kind().caps_of(kind).note(rule, throttle_ms, now_ms, at_ms)

    def count_cap_wait(self, kind: QuotaKind, rule: Entity, change: int, now_ms: int, waited_ms: int = 0) -> None:
        """Count one more, or one fewer, request that waits under a cap, as ``count_wait``."""
        self._by_kind().caps_of(kind).wait(rule, change, now_ms, waited_ms)

    def set_caps(self, rules: dict[QuotaKind, str]) -> None:
        """Set the caps in force, as JSON."""
        if rules or self.by_kind is not None:
            self._by_kind().cap_rules = rules

    def take_caps(self, now_ms: int) -> Caps:
        """Return the figures of caps, and reset the counters. To be called before ``take``."""
        return NO_CAPS if self.by_kind is None else self.by_kind.take_caps(now_ms)

    def count_wait(self, kind: QuotaKind, change: int, now_ms: int, waited_ms: int = 0) -> None:
        """Count one more request of this client that waits, or one fewer, which has waited ``waited_ms``."""
        self._by_kind().throttles_of(kind).wait(change, now_ms, waited_ms)
        self._throttles().wait(change, now_ms, waited_ms)

    def use_of(self, kind: QuotaKind) -> KindUsage:
        """Return the counter of charges of a kind without an attribute here: always the same object."""
        return self._by_kind().use_of(kind)

    def _throttles(self) -> Throttles:
        if self.throttles is None:
            self.throttles = Throttles()
        return self.throttles

    def _by_kind(self) -> ByKind:
        if self.by_kind is None:
            self.by_kind = ByKind()
        return self.by_kind

    @property
    def active(self) -> bool:
        """Something was counted since the last record, or a mute may be under way."""
        return bool(
            self.produce_requests
            or self.other_requests
            or self.bytes_out
            or self.other_bytes
            or self.connections_opened
            or (self.by_kind is not None and self.by_kind.active)
        )

    def take_traffic(self) -> Traffic:
        """Return the traffic since the last call, independent of when records are taken."""
        counted = self.counted
        grown = self.unshown.plus(counted)
        self.unshown = Traffic(*(-each for each in counted))
        return grown

    @property
    def counted(self) -> Traffic:
        """The traffic since the last record."""
        bytes_in = self.produce_bytes + 4 * self.produce_requests + self.other_bytes
        requests = self.produce_requests + self.other_requests
        exempt = (bytes_in, self.bytes_out) if self.key.exempt else (0, 0)
        return Traffic(bytes_in, self.bytes_out, requests, self.connections_opened, *exempt)

    def is_throttled(self, now_ms: int) -> bool:
        """Whether it is throttled now."""
        return self.by_kind is not None and self.by_kind.is_muted(now_ms - NOW_MS)

    def sample(self, elapsed_s: float, now_ms: int) -> None:
        """Take a sample of what was counted since the last one."""
        lately = self.lately
        counted = self.counted
        bytes_in, bytes_out = self.past_in + counted.bytes_in, self.past_out + counted.bytes_out
        if lately is None:
            if not (bytes_in or bytes_out or self.throttles is not None):
                return
            lately = self.lately = Lately()
        lately.sample(bytes_in, bytes_out, elapsed_s)
        throttles = self.throttles
        if throttles is not None:
            holds = lately.sample_muted(throttles.take(now_ms)[2])
            if not holds and throttles.over(now_ms):
                self.throttles = None

    def rates(self, since_ms: int) -> tuple[float, float]:
        """Return bytes in and out per second over ten seconds; the last sample was ``since_ms`` ago."""
        lately = self.lately
        counted = self.counted
        bytes_in, bytes_out = self.past_in + counted.bytes_in, self.past_out + counted.bytes_out
        per_s = 1000 / max(since_ms, SAMPLE_MS)
        if lately is None:
            return bytes_in * per_s, bytes_out * per_s
        rest = max(SAMPLE_MS - since_ms, 0) / SAMPLE_MS
        return (
            (bytes_in - lately.bytes_in) * per_s + lately.in_per_s * rest,
            (bytes_out - lately.bytes_out) * per_s + lately.out_per_s * rest,
        )

    def throttled_shares(self, now_ms: int) -> Shares:
        """Return the shares of the last minutes in which it was throttled, as far as they have been counted."""
        throttles = self.throttles
        lately = self.lately
        if throttles is None:
            return NO_SHARES
        muted_ms = throttles.muted_ms(now_ms)
        one, five, fifteen = [
            min((muted_ms + (0 if lately is None else lately.muted_ms(minutes))) / (minutes * 60_000), 1.0)
            for minutes in MINUTES
        ]
        return one, five, fifteen

    def take_shadows(self, now_ms: int) -> Shadows:
        """Return the figures of limits in shadow, and reset the counters. To be called before ``take``."""
        return NO_SHADOWS if self.by_kind is None else self.by_kind.take_shadows(now_ms)

    def take(self, now_ms: int) -> tuple[tuple[object, ...], Further]:
        """Return a row in the order of ``proxy.usage.records.COLUMNS`` and the figures of further kinds;
        reset the counters.
        """
        listener, broker, user, client_id, _ = self.key
        counted = self.counted
        self.unshown = self.unshown.plus(counted)
        self.past_in += counted.bytes_in
        self.past_out += counted.bytes_out
        produce, fetch = self.limits
        row = (
            listener,
            broker,
            user,
            client_id,
            counted.bytes_in,
            self.bytes_out,
            counted.requests,
            self.request_time_ms,
            self.connections,
            self.connections_opened,
            0,
            self.produce_bytes,
            self.produce_requests,
            *produce,
            self.fetch_bytes,
            self.fetch_requests,
            *fetch,
        )
        throttles, further = NO_THROTTLES, NOTHING_FURTHER
        if self.by_kind is not None:
            throttles, further = self.by_kind.take(now_ms)
            if not self.by_kind.holds:
                self.by_kind = None
        self.produce_requests = self.produce_bytes = self.fetch_requests = self.fetch_bytes = 0
        self.other_requests = self.other_bytes = self.bytes_out = self.request_time_ms = self.connections_opened = 0
        return row + throttles, further
