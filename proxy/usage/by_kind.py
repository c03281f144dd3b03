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

CapUse = tuple[str | None, str | None, int, int]
"""The caps that hold, the one that gave most, and the throttles that all gave (``Row.cap_columns``)."""
Caps = Mapping[QuotaKind, CapUse]
"""Of each kind with caps."""

_NEVER: Final = (0, 0, 0)
_NO_USE: Final = (0, 0, None, None)
NO_THROTTLES: Final[tuple[int, ...]] = _NEVER * len(BY_HAND)
NOTHING: Final = (*_NO_USE, *_NEVER)
"""Of a further kind of which there is nothing to say."""
NO_SHADOW: Final = (None, *_NEVER)
NO_SHADOWS: Final[Shadows] = MappingProxyType({})
NO_CAP: Final = (None, None, 0, 0)
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


class ByKind:
    """What a meter has of any kind, from the first throttle, charge or limit on."""

    __slots__ = ("cap_rules", "caps", "shadow_limits", "shadows", "throttles", "uses")

    def __init__(self) -> None:
        self.throttles: dict[QuotaKind, Throttles] = {}
        self.uses: dict[QuotaKind, Use] = {}
        self.shadows: dict[QuotaKind, Throttles] = {}
        """What limits in shadow would have given."""
        self.shadow_limits: dict[QuotaKind, float] = {}
        self.caps: dict[QuotaKind, dict[Entity, tuple[int, int]]] = {}
        """How many throttles each cap gave, and how long they were together."""
        self.cap_rules: dict[QuotaKind, str] = {}
        """The caps that hold."""

    def note_cap(self, kind: QuotaKind, rule: Entity, throttle_ms: int) -> None:
        """Count a throttle that a cap gave."""
        of_kind = self.caps.setdefault(kind, {})
        throttled, before_ms = of_kind.get(rule, (0, 0))
        of_kind[rule] = throttled + 1, before_ms + throttle_ms

    def take_caps(self) -> Caps:
        """Return what caps have done, of each kind that has any, and count from zero again."""
        caps, self.caps = self.caps, {}
        return {kind: self._cap_use(kind, caps.get(kind, {})) for kind in self.cap_rules.keys() | caps.keys()}

    def _cap_use(self, kind: QuotaKind, given: dict[Entity, tuple[int, int]]) -> CapUse:
        most = max(given, key=lambda rule: given[rule][1], default=None)
        throttled = sum([each for each, _ in given.values()])
        throttle_ms = sum([each_ms for _, each_ms in given.values()])
        return self.cap_rules.get(kind), None if most is None else most.describe(), throttled, throttle_ms

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
