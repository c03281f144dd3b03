"""A meter's counters by quota kind: throttles, limits, and charges of the kinds not in BY_HAND."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from quotas.entities import Entity
from quotas.kinds import QuotaKind

BY_HAND: Final = (QuotaKind.PRODUCER_BYTE_RATE, QuotaKind.CONSUMER_BYTE_RATE)
"""The kinds that have columns in every row of usage records. A meter counts their charges in attributes of its own."""

Row = Sequence[object]
Limit = tuple[float | None, str | None, str | None, str | None]
"""A limit, its rule, and the user and client-id of its counter (None if they play no role)."""
NO_LIMIT: Final[Limit] = (None, None, None, None)
NO_THROTTLES: Final = (0, 0, 0)

CHARGED: Final = {kind: kind.row.columns for kind in QuotaKind}
IN_SHADOW: Final = {kind: kind.row.shadow_columns for kind in QuotaKind}
BY_CAPS: Final = {kind: kind.row.cap_columns for kind in QuotaKind}

Figures = dict[tuple[str, ...], Row]
"""Figures, by the names of their columns."""
NOTHING: Final[Mapping[tuple[str, ...], Row]] = {
    **dict.fromkeys([CHARGED[kind] for kind in QuotaKind if kind not in BY_HAND], (0, 0, *NO_LIMIT, *NO_THROTTLES)),
    **dict.fromkeys(IN_SHADOW.values(), (None, *NO_THROTTLES)),
    **dict.fromkeys(BY_CAPS.values(), (None, None, *NO_THROTTLES)),
}
"""Columns that only documents have in which a row has something to say there: the figures of a row with nothing."""


@dataclass(slots=True, eq=False)
class Throttles:
    """How long one client was throttled: overlapping mutes and waits of its connections count once."""

    throttled: int = 0
    throttle_ms: int = 0
    waiting: int = 0
    """Requests that wait now."""
    muted_until_ms: int = 0
    """End of the last mute."""
    _muted_ms: int = 0
    """Length of the union of mutes and waits, counted until ``_seen_ms``."""
    _seen_ms: int = 0

    def count(self, throttle_ms: int, now_ms: int, at_ms: int | None = None) -> None:
        """Count a throttle that begins now, or began at ``at_ms``; it may overlap with others."""
        self._see(now_ms)
        self.throttled += 1
        self.throttle_ms += throttle_ms
        begin_ms = now_ms if at_ms is None else at_ms
        end_ms = begin_ms + throttle_ms
        if begin_ms < now_ms:
            self._muted_ms += max(min(end_ms, now_ms) - max(begin_ms, self.muted_until_ms), 0)
        self.muted_until_ms = max(self.muted_until_ms, end_ms)

    def count_wait(self, change: int, now_ms: int, waited_ms: int = 0) -> None:
        """Count one more request that waits, or one fewer, which has waited ``waited_ms``."""
        self._see(now_ms)
        self.waiting += change
        if waited_ms:
            self.throttled += 1
            self.throttle_ms += waited_ms

    def take(self, now_ms: int) -> tuple[int, int, int]:
        """Return (throttled, throttle_ms, muted_ms) until now, and reset the counters."""
        self._see(now_ms)
        taken = (self.throttled, self.throttle_ms, self._muted_ms)
        self.throttled = self.throttle_ms = self._muted_ms = 0
        return taken

    def muted_ms(self, now_ms: int) -> int:
        """Return the time muted until now, since the last ``take``."""
        self._see(now_ms)
        return self._muted_ms

    def over(self, now_ms: int) -> bool:
        """Whether no mute or wait is left to count later."""
        return not self.waiting and self.muted_until_ms <= now_ms

    @property
    def active(self) -> bool:
        """Something was counted since the last ``take``, or is left to count later."""
        return bool(self.throttled or self._muted_ms) or not self.over(self._seen_ms)

    def _see(self, now_ms: int) -> None:
        if now_ms > self._seen_ms:
            until_ms = now_ms if self.waiting else min(self.muted_until_ms, now_ms)
            self._muted_ms += max(until_ms - self._seen_ms, 0)
            self._seen_ms = now_ms


@dataclass(slots=True, eq=False)
class KindUsage:
    """A meter's counters of one kind, and the limits in force."""

    used: int = 0
    """In the unit of its column (``Unit.used``); 0 for the kinds in BY_HAND, as ``requests``."""
    requests: int = 0
    limit: Limit = NO_LIMIT
    throttles: Throttles = field(default_factory=Throttles)
    """Given by the limit and by caps."""
    shadow_limit: float | None = None
    in_shadow: Throttles = field(default_factory=Throttles)
    """Those that the limit in shadow would have given."""
    caps: str | None = None
    """The caps in force, as JSON."""
    in_caps: Throttles = field(default_factory=Throttles)
    """The union of those that caps have given, as mutes overlap; ``_by_cap`` has each cap's own."""
    _by_cap: dict[Entity, Throttles] = field(default_factory=dict)

    def throttles_under(self, cap: Entity | None) -> tuple[Throttles, ...]:
        """Return all the counters of a throttle given by a cap, or by the limit."""
        if cap is None:
            return (self.throttles,)
        by_cap = self._by_cap.get(cap)
        if by_cap is None:
            by_cap = self._by_cap[cap] = Throttles()
        return self.throttles, self.in_caps, by_cap

    @property
    def active(self) -> bool:
        """Something was counted since the last record, or a mute may be under way."""
        return bool(self.used or self.requests) or self.throttles.active or self.in_shadow.active or self.in_caps.active

    def take(self, now_ms: int) -> Row:
        """Return the figures of CHARGED, and reset the counters."""
        taken = (self.used, self.requests, *self.limit, *self.throttles.take(now_ms))
        self.used = self.requests = 0
        return taken

    def take_caps(self, now_ms: int, describe: Callable[[Entity], str]) -> Row:
        """Return the figures of BY_CAPS, with the cap that throttled longest; reset the counters."""
        most: Entity | None = None
        longest = 0, 0
        for cap, throttles in list(self._by_cap.items()):
            _, throttle_ms, muted_ms = throttles.take(now_ms)
            if (muted_ms, throttle_ms) > longest:
                most, longest = cap, (muted_ms, throttle_ms)
            if throttles.over(now_ms):
                del self._by_cap[cap]
        return (self.caps, None if most is None else describe(most), *self.in_caps.take(now_ms))
