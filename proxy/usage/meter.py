"""What one client used since the last usage record: counters that the sessions raise.

Counting is adding to an int; what a record shows is worked out when it is taken (docs/usage-records.md).
"""

from typing import Final, NamedTuple

from proxy.usage.by_kind import (
    NO_CAPS,
    NO_SHADOWS,
    NO_THROTTLES,
    NOTHING_FURTHER,
    ByKind,
    Caps,
    Further,
    Shadows,
    Use,
)
from quotas.entities import Entity
from quotas.kinds import QuotaKind


class MeterKey(NamedTuple):
    """Whom a meter is for. ``client_id`` "" is also that of clients without one; ``broker`` -1: not known yet."""

    listener: str
    broker: int
    user: str
    client_id: str
    exempt: bool = False
    """Of the traffic that no quota holds."""


class Traffic(NamedTuple):
    """What went through, sizes included, and how many connections came with it; of the bytes, those that no quota
    holds.
    """

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


class Client(NamedTuple):
    """Whose traffic it is, through which listener."""

    listener: str
    user: str
    client_id: str


class ClientState(NamedTuple):
    """What a client had since it was asked for last, and how it stands now."""

    client: Client
    traffic: Traffic
    connections: int = 0
    is_muted: bool = False
    """A request of it waits for its turn now, or one of its connections for the end of a throttle."""


Limits = tuple[float | None, str | None, float | None, str | None]
"""Of the first of ``by_kind.BY_HAND`` and the rule that set it, of the second and its rule."""


class Meter:
    """What one client used through one listener at one broker.

    Raised by hand on the hot path, each request and each answer with two additions.
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
        "limits",
        "name_bytes",
        "other_bytes",
        "other_requests",
        "produce_bytes",
        "produce_requests",
        "request_time_ms",
        "unshown",
    )

    def __init__(self, key: MeterKey) -> None:
        self.key = key
        self.produce_requests = 0
        self.produce_bytes = 0
        """Sizes of Produce requests, as they are charged: without the size field."""
        self.fetch_requests = 0
        self.fetch_bytes = 0
        """Of Fetch responses, as they are charged."""
        self.other_requests = 0
        """All but Produce."""
        self.other_bytes = 0
        """Of these requests, size fields included."""
        self.bytes_out = 0
        self.request_time_ms = 0
        self.connections = 0
        self.connections_opened = 0
        self.by_kind: ByKind | None = None
        """Throttles of any kind, and whatever else there is of kinds without an attribute here; mostly nothing."""
        self.limits: Limits = (None, None, None, None)
        """In force when the engine had that generation."""
        self.name_bytes = 0
        """The most that the names in a row take, those of the rules included."""
        self.generation = -1
        self.holders = 0
        """Accounts on whose behalf something may still be counted here."""
        self.unshown = NO_TRAFFIC
        """What ``take_traffic`` has to return beyond what stands above; below 0 where it has returned that already."""

    def note_throttle(self, kind: QuotaKind, throttle_ms: int, now_ms: int, at_ms: int | None = None) -> None:
        """Count a throttle given to a request of this client; ``at_ms`` is when it began, if not now."""
        self._by_kind().throttles_of(kind).note(throttle_ms, now_ms, at_ms)

    def note_shadow(self, kind: QuotaKind, throttle_ms: int, now_ms: int, at_ms: int) -> None:
        """Count a throttle that a limit in shadow would have given, from ``at_ms`` on."""
        self._by_kind().shadow_of(kind).note(throttle_ms, now_ms, at_ms)

    def set_shadow_limits(self, limits: dict[QuotaKind, float]) -> None:
        """Take note of the limits that are measured and hold nobody."""
        if limits or self.by_kind is not None:
            self._by_kind().shadow_limits = limits

    def note_cap(self, kind: QuotaKind, rule: Entity, throttle_ms: int, now_ms: int, at_ms: int | None = None) -> None:
        """Count a throttle that a cap gave, which is counted as any other too."""
        self._by_kind().caps_of(kind).note(rule, throttle_ms, now_ms, at_ms)

    def note_cap_wait(self, kind: QuotaKind, rule: Entity, change: int, now_ms: int, waited_ms: int = 0) -> None:
        """Take note that one more request waits for its turn under a cap, or one fewer, likewise."""
        self._by_kind().caps_of(kind).wait(rule, change, now_ms, waited_ms)

    def set_caps(self, rules: dict[QuotaKind, tuple[str, str]]) -> None:
        """Take note of the caps that hold, and of their limits."""
        if rules or self.by_kind is not None:
            self._by_kind().cap_rules = rules

    def take_caps(self, now_ms: int) -> Caps:
        """Return what caps have done, and count from zero again. To be called before ``take``."""
        return NO_CAPS if self.by_kind is None else self.by_kind.take_caps(now_ms)

    def note_wait(self, kind: QuotaKind, change: int, now_ms: int, waited_ms: int = 0) -> None:
        """Take note that one more request of this client waits for its turn, or one fewer that has waited so long."""
        self._by_kind().throttles_of(kind).wait(change, now_ms, waited_ms)

    def use_of(self, kind: QuotaKind) -> Use:
        """Return where charges of a kind that has no attribute here are counted: always the same."""
        return self._by_kind().use_of(kind)

    def _by_kind(self) -> ByKind:
        if self.by_kind is None:
            self.by_kind = ByKind()
        return self.by_kind

    @property
    def active(self) -> bool:
        """Something has been counted since the last record, or a mute may still be on."""
        return bool(
            self.produce_requests
            or self.other_requests
            or self.bytes_out
            or self.other_bytes
            or self.connections_opened
            or (self.by_kind is not None and self.by_kind.active)
        )

    def take_traffic(self) -> Traffic:
        """Return what went through since this was called last, whenever records were taken."""
        counted = self._counted
        grown = self.unshown.plus(counted)
        self.unshown = Traffic(*(-each for each in counted))
        return grown

    @property
    def _counted(self) -> Traffic:
        """What stands here since the last record."""
        bytes_in = self.produce_bytes + 4 * self.produce_requests + self.other_bytes
        requests = self.produce_requests + self.other_requests
        exempt = (bytes_in, self.bytes_out) if self.key.exempt else (0, 0)
        return Traffic(bytes_in, self.bytes_out, requests, self.connections_opened, *exempt)

    def is_muted(self, now_ms: int) -> bool:
        """Whether a request of this client waits for its turn, or a connection for the end of a throttle."""
        return self.by_kind is not None and self.by_kind.is_muted(now_ms)

    def take_shadows(self, now_ms: int) -> Shadows:
        """Return what limits in shadow would have done, and count from zero again. To be called before ``take``."""
        return NO_SHADOWS if self.by_kind is None else self.by_kind.take_shadows(now_ms)

    def take(self, now_ms: int) -> tuple[tuple[object, ...], Further]:
        """Return a row in the order of ``usage_records.COLUMNS`` and what else there is, and count from zero again."""
        listener, broker, user, client_id, _ = self.key
        counted = self._counted
        self.unshown = self.unshown.plus(counted)
        produce_limit, produce_rule, fetch_limit, fetch_rule = self.limits
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
            produce_limit,
            produce_rule,
            self.fetch_bytes,
            self.fetch_requests,
            fetch_limit,
            fetch_rule,
        )
        throttles, further = NO_THROTTLES, NOTHING_FURTHER
        if self.by_kind is not None:
            throttles, further = self.by_kind.take(now_ms)
            if not self.by_kind.holds:
                self.by_kind = None
        self.produce_requests = self.produce_bytes = self.fetch_requests = self.fetch_bytes = 0
        self.other_requests = self.other_bytes = self.bytes_out = self.request_time_ms = self.connections_opened = 0
        return row + throttles, further
