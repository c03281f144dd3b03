"""A meter's counters by quota kind: throttles of every kind, and charges and limits of the kinds not in BY_HAND.

Kinds in BY_HAND are charged with each request; a meter counts them in attributes of its own.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from proxy.usage.throttles import Throttles
from quotas.entities import Entity
from quotas.kinds import QuotaKind

BY_HAND: Final = (QuotaKind.PRODUCER_BYTE_RATE, QuotaKind.CONSUMER_BYTE_RATE)
"""The kinds that have columns in every row of usage records."""

Further = Mapping[QuotaKind, tuple[object, ...]]
"""Figures of each other kind that has any, in the order of its columns (``QuotaKind.row.columns``)."""

Shadows = Mapping[QuotaKind, tuple[float | None, int, int, int]]
"""For each kind with a limit in shadow: the limit, and the throttles it would have given (``Row.shadow_columns``)."""

CapUse = tuple[str | None, Entity | None, int, int, int]
"""The caps in force, the cap that throttled longest, and the throttles of all of them: as ``Row.cap_columns``, where it
is given by name."""
Names = tuple[str | None, str | None, str | None]
"""A rule, and the user and client-id of its counter: None if they play no role, or there is no rule."""
NO_NAMES: Final[Names] = (None, None, None)
Caps = Mapping[QuotaKind, CapUse]
"""Figures of each kind with caps."""

_NEVER: Final = (0, 0, 0)
_NO_USE: Final = (0, 0, None, *NO_NAMES)
NO_THROTTLES: Final[tuple[int, ...]] = _NEVER * len(BY_HAND)
NOTHING: Final = (*_NO_USE, *_NEVER)
"""Figures of a kind with nothing to report."""
NO_SHADOW: Final = (None, *_NEVER)
NO_SHADOWS: Final[Shadows] = MappingProxyType({})
NO_CAP: Final = (None, None, *_NEVER)
NO_CAPS: Final[Caps] = MappingProxyType({})
NOTHING_FURTHER: Final[Further] = MappingProxyType({})


class KindUsage:
    """Charges under a kind that is not in BY_HAND, and its limit."""

    __slots__ = ("limit", "names", "requests", "used")

    def __init__(self) -> None:
        self.used = 0
        """In the unit of its column (``Unit.used``)."""
        self.requests = 0
        self.limit: float | None = None
        self.names = NO_NAMES

    def take(self) -> tuple[object, ...]:
        """Return the figures, and reset the counters."""
        taken = (self.used, self.requests, self.limit, *self.names)
        self.used = self.requests = 0
        return taken


class CapThrottles:
    """Throttles given by caps of one kind: the union of all, as mutes overlap, and each cap's own."""

    __slots__ = ("_all", "_each")

    def __init__(self) -> None:
        self._all = Throttles()
        self._each: dict[Entity, Throttles] = {}

    def note(self, rule: Entity, throttle_ms: int, now_ms: int, at_ms: int | None) -> None:
        """Count a throttle given by a cap (``Throttles.note``)."""
        self._all.note(throttle_ms, now_ms, at_ms)
        self._of(rule).note(throttle_ms, now_ms, at_ms)

    def wait(self, rule: Entity, change: int, now_ms: int, waited_ms: int) -> None:
        """Count one more, or one fewer, request that waits for a cap (``Throttles.wait``)."""
        self._all.wait(change, now_ms, waited_ms)
        self._of(rule).wait(change, now_ms, waited_ms)

    def _of(self, rule: Entity) -> Throttles:
        each = self._each.get(rule)
        if each is None:
            each = self._each[rule] = Throttles()
        return each

    def take(self, now_ms: int) -> tuple[Entity | None, int, int, int]:
        """Return the cap that throttled longest and the throttles of all; reset the counters."""
        most: Entity | None = None
        longest = 0, 0
        for rule, each in self._each.items():
            _, throttle_ms, muted_ms = each.take(now_ms)
            if (muted_ms, throttle_ms) > longest:
                most, longest = rule, (muted_ms, throttle_ms)
        self._each = {rule: each for rule, each in self._each.items() if not each.over(now_ms)}
        throttled, throttle_ms, muted_ms = self._all.take(now_ms)
        return most, throttled, throttle_ms, muted_ms

    def over(self, now_ms: int) -> bool:
        """Whether no mute or wait is left to count later."""
        return self._all.over(now_ms)


_NOT_HELD: Final = (None, *_NEVER)


class ByKind:
    """A meter's counters by kind, created with the first throttle, charge or limit."""

    __slots__ = ("cap_rules", "caps", "shadow_limits", "shadows", "throttles", "uses")

    def __init__(self) -> None:
        self.throttles: dict[QuotaKind, Throttles] = {}
        self.uses: dict[QuotaKind, KindUsage] = {}
        self.shadows: dict[QuotaKind, Throttles] = {}
        """Throttles that limits in shadow would have given."""
        self.shadow_limits: dict[QuotaKind, float] = {}
        self.caps: dict[QuotaKind, CapThrottles] = {}
        self.cap_rules: dict[QuotaKind, str] = {}
        """The caps in force, as JSON."""

    def caps_of(self, kind: QuotaKind) -> CapThrottles:
        """Return the counter of a kind's throttles by caps."""
        caps = self.caps.get(kind)
        if caps is None:
            caps = self.caps[kind] = CapThrottles()
        return caps

    def take_caps(self, now_ms: int) -> Caps:
        """Return the figures of caps, by kind, and reset the counters."""
        taken = {kind: caps.take(now_ms) for kind, caps in self.caps.items()}
        self.caps = {kind: caps for kind, caps in self.caps.items() if not caps.over(now_ms)}
        found: dict[QuotaKind, CapUse] = {}
        for kind in self.cap_rules.keys() | taken.keys():
            found[kind] = (self.cap_rules.get(kind), *taken.get(kind, _NOT_HELD))
        return found

    def throttles_of(self, kind: QuotaKind) -> Throttles:
        """Return the counter of a kind's throttles."""
        throttles = self.throttles.get(kind)
        if throttles is None:
            throttles = self.throttles[kind] = Throttles()
        return throttles

    def shadow_of(self, kind: QuotaKind) -> Throttles:
        """Return the counter of throttles that a kind's limit in shadow would have given."""
        shadow = self.shadows.get(kind)
        if shadow is None:
            shadow = self.shadows[kind] = Throttles()
        return shadow

    def use_of(self, kind: QuotaKind) -> KindUsage:
        """Return the counter of charges of a kind that is not in BY_HAND: the same object as long
        as the meter lives.
        """
        use = self.uses.get(kind)
        if use is None:
            use = self.uses[kind] = KindUsage()
        return use

    @property
    def active(self) -> bool:
        """Something was counted since the last record, or a mute may be under way."""
        return (
            bool(self.throttles)
            or bool(self.shadows)
            or bool(self.caps)
            or any(use.used or use.requests for use in self.uses.values())
        )

    @property
    def holds(self) -> bool:
        """Any counter or limit that has to be kept."""
        return bool(self.throttles or self.uses or self.shadows or self.shadow_limits or self.caps or self.cap_rules)

    def take_shadows(self, now_ms: int) -> Shadows:
        """Return the figures of limits in shadow, by kind, and reset the counters."""
        taken = {kind: throttles.take(now_ms) for kind, throttles in self.shadows.items()}
        self.shadows = {kind: each for kind, each in self.shadows.items() if not each.over(now_ms)}
        limits = self.shadow_limits
        return {kind: (limits.get(kind), *taken.get(kind, _NEVER)) for kind in limits.keys() | taken.keys()}

    def is_muted(self, now_ms: int) -> bool:
        """Whether a request waits, or a mute is under way."""
        return any(not throttles.over(now_ms) for throttles in self.throttles.values())

    def take(self, now_ms: int) -> tuple[tuple[int, ...], Further]:
        """Return the throttles of BY_HAND and all figures of the other kinds, and reset the counters."""
        taken = {kind: throttles.take(now_ms) for kind, throttles in self.throttles.items()}
        self.throttles = {kind: each for kind, each in self.throttles.items() if not each.over(now_ms)}
        of_row: tuple[int, ...] = ()
        for kind in BY_HAND:
            of_row += taken.pop(kind, _NEVER)
        uses = {kind: use.take() for kind, use in self.uses.items()}
        found = {kind: (*uses.get(kind, _NO_USE), *taken.get(kind, _NEVER)) for kind in uses.keys() | taken.keys()}
        return of_row, {kind: figures for kind, figures in found.items() if figures != NOTHING}
