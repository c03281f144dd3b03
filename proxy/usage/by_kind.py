"""What one client's meter has by quota kind: of every kind its throttles, and of most what was charged and the limit.

What BY_HAND names is charged with each request, and a meter counts it in attributes of its own.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from proxy.usage.throttles import Throttles
from quotas.entities import Entity
from quotas.kinds import QuotaKind

BY_HAND: Final = (QuotaKind.PRODUCER_BYTE_RATE, QuotaKind.CONSUMER_BYTE_RATE)
"""The kinds that every row of usage records has columns of."""

Further = Mapping[QuotaKind, tuple[object, ...]]
"""Of each other kind with anything to say: in the order of its columns (``QuotaKind.row.columns``)."""

Shadows = Mapping[QuotaKind, tuple[float | None, int, int, int]]
"""Of each kind with a limit in shadow: that, and the throttles it would have given (``Row.shadow_columns``)."""

CapUse = tuple[str | None, str | None, Entity | None, int, int, int]
"""The caps that hold and their limits, the one that held for longest, and the throttles that all gave: as
``Row.cap_columns``, where that one has its name.
"""
Caps = Mapping[QuotaKind, CapUse]
"""Of each kind with caps."""

_NEVER: Final = (0, 0, 0)
_NO_USE: Final = (0, 0, None, None)
NO_THROTTLES: Final[tuple[int, ...]] = _NEVER * len(BY_HAND)
NOTHING: Final = (*_NO_USE, *_NEVER)
"""Of a further kind of which there is nothing to say."""
NO_SHADOW: Final = (None, *_NEVER)
NO_SHADOWS: Final[Shadows] = MappingProxyType({})
NO_CAP: Final = (None, None, None, *_NEVER)
_NO_RULES: Final = (None, None)
NO_CAPS: Final[Caps] = MappingProxyType({})
NOTHING_FURTHER: Final[Further] = MappingProxyType({})


class Use:
    """What was charged under a kind that is not in BY_HAND, and the limit."""

    __slots__ = ("limit", "requests", "rule", "used")

    def __init__(self) -> None:
        self.used = 0
        """As its column counts it (``Unit.used``)."""
        self.requests = 0
        self.limit: float | None = None
        self.rule: str | None = None

    def take(self) -> tuple[int, int, float | None, str | None]:
        """Return it all, and count from zero again."""
        taken = (self.used, self.requests, self.limit, self.rule)
        self.used = self.requests = 0
        return taken


class CapThrottles:
    """What caps of one kind gave: together, as mutes of several overlap, and which of them most."""

    __slots__ = ("_all", "_each")

    def __init__(self) -> None:
        self._all = Throttles()
        self._each: dict[Entity, Throttles] = {}

    def note(self, rule: Entity, throttle_ms: int, now_ms: int, at_ms: int | None) -> None:
        """Count a throttle that a cap gave (``Throttles.note``)."""
        self._all.note(throttle_ms, now_ms, at_ms)
        self._of(rule).note(throttle_ms, now_ms, at_ms)

    def wait(self, rule: Entity, change: int, now_ms: int, waited_ms: int) -> None:
        """Take note of one more, or one fewer, that waits for a cap (``Throttles.wait``)."""
        self._all.wait(change, now_ms, waited_ms)
        self._of(rule).wait(change, now_ms, waited_ms)

    def _of(self, rule: Entity) -> Throttles:
        each = self._each.get(rule)
        if each is None:
            each = self._each[rule] = Throttles()
        return each

    def take(self, now_ms: int) -> tuple[Entity | None, int, int, int]:
        """Return which of them held for longest, and the throttles of all; count from zero again."""
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
        """Whether nothing is left to be counted later."""
        return self._all.over(now_ms)


_NOT_HELD: Final = (None, *_NEVER)


class ByKind:
    """What a meter has of any kind, from the first throttle, charge or limit on."""

    __slots__ = ("cap_rules", "caps", "shadow_limits", "shadows", "throttles", "uses")

    def __init__(self) -> None:
        self.throttles: dict[QuotaKind, Throttles] = {}
        self.uses: dict[QuotaKind, Use] = {}
        self.shadows: dict[QuotaKind, Throttles] = {}
        """What limits in shadow would have given."""
        self.shadow_limits: dict[QuotaKind, float] = {}
        self.caps: dict[QuotaKind, CapThrottles] = {}
        self.cap_rules: dict[QuotaKind, tuple[str, str]] = {}
        """The caps that hold, and their limits."""

    def caps_of(self, kind: QuotaKind) -> CapThrottles:
        """Return what counts the throttles that caps give."""
        caps = self.caps.get(kind)
        if caps is None:
            caps = self.caps[kind] = CapThrottles()
        return caps

    def take_caps(self, now_ms: int) -> Caps:
        """Return what caps have done, of each kind that has any, and count from zero again."""
        taken = {kind: caps.take(now_ms) for kind, caps in self.caps.items()}
        self.caps = {kind: caps for kind, caps in self.caps.items() if not caps.over(now_ms)}
        found: dict[QuotaKind, CapUse] = {}
        for kind in self.cap_rules.keys() | taken.keys():
            names, limits = self.cap_rules.get(kind, _NO_RULES)
            found[kind] = (names, limits, *taken.get(kind, _NOT_HELD))
        return found

    def throttles_of(self, kind: QuotaKind) -> Throttles:
        """Return what counts the throttles of a kind."""
        throttles = self.throttles.get(kind)
        if throttles is None:
            throttles = self.throttles[kind] = Throttles()
        return throttles

    def shadow_of(self, kind: QuotaKind) -> Throttles:
        """Return what counts the throttles that a limit in shadow would have given."""
        shadow = self.shadows.get(kind)
        if shadow is None:
            shadow = self.shadows[kind] = Throttles()
        return shadow

    def use_of(self, kind: QuotaKind) -> Use:
        """Return what counts the charges of a kind that is not in BY_HAND: as long as the meter is there, the same."""
        use = self.uses.get(kind)
        if use is None:
            use = self.uses[kind] = Use()
        return use

    @property
    def active(self) -> bool:
        """Something has been counted since it was taken last, or a mute may still be on."""
        return (
            bool(self.throttles)
            or bool(self.shadows)
            or bool(self.caps)
            or any(use.used or use.requests for use in self.uses.values())
        )

    @property
    def holds(self) -> bool:
        """There is anything that has to be kept."""
        return bool(self.throttles or self.uses or self.shadows or self.shadow_limits or self.caps or self.cap_rules)

    def take_shadows(self, now_ms: int) -> Shadows:
        """Return what limits in shadow would have done, of each kind that has one, and count from zero again."""
        taken = {kind: throttles.take(now_ms) for kind, throttles in self.shadows.items()}
        self.shadows = {kind: each for kind, each in self.shadows.items() if not each.over(now_ms)}
        limits = self.shadow_limits
        return {kind: (limits.get(kind), *taken.get(kind, _NEVER)) for kind in limits.keys() | taken.keys()}

    def is_muted(self, now_ms: int) -> bool:
        """Whether something waits now, or a mute is on."""
        return any(not throttles.over(now_ms) for throttles in self.throttles.values())

    def take(self, now_ms: int) -> tuple[tuple[int, ...], Further]:
        """Return the throttles of BY_HAND and all of the other kinds, and count from zero again."""
        taken = {kind: throttles.take(now_ms) for kind, throttles in self.throttles.items()}
        self.throttles = {kind: each for kind, each in self.throttles.items() if not each.over(now_ms)}
        of_row: tuple[int, ...] = ()
        for kind in BY_HAND:
            of_row += taken.pop(kind, _NEVER)
        uses = {kind: use.take() for kind, use in self.uses.items()}
        found = {kind: (*uses.get(kind, _NO_USE), *taken.get(kind, _NEVER)) for kind in uses.keys() | taken.keys()}
        return of_row, {kind: figures for kind, figures in found.items() if figures != NOTHING}
