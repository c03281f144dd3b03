"""What one client's meter has by quota kind: of every kind its throttles, and of most what was charged and the limit.

What BY_HAND names is charged with each request, and a meter counts it in attributes of its own.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from proxy.usage.throttles import Throttles
from quotas.kinds import QuotaKind

BY_HAND: Final = (QuotaKind.PRODUCER_BYTE_RATE, QuotaKind.CONSUMER_BYTE_RATE)
"""The kinds that every row of usage records has columns of."""

Further = Mapping[QuotaKind, tuple[object, ...]]
"""Of each other kind with anything to say: in the order of its columns (``QuotaKind.row.columns``)."""

Shadows = Mapping[QuotaKind, tuple[float | None, int, int, int]]
"""Of each kind with a limit in shadow: that, and the throttles it would have given (``Row.shadow_columns``)."""

_NEVER: Final = (0, 0, 0)
_NO_USE: Final = (0, 0, None, None)
NO_THROTTLES: Final[tuple[int, ...]] = _NEVER * len(BY_HAND)
NOTHING: Final = (*_NO_USE, *_NEVER)
"""Of a further kind of which there is nothing to say."""
NO_SHADOW: Final = (None, *_NEVER)
NO_SHADOWS: Final[Shadows] = MappingProxyType({})
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

    __slots__ = ("shadow_limits", "shadows", "throttles", "uses")

    def __init__(self) -> None:
        self.throttles: dict[QuotaKind, Throttles] = {}
        self.uses: dict[QuotaKind, Use] = {}
        self.shadows: dict[QuotaKind, Throttles] = {}
        """What limits in shadow would have given."""
        self.shadow_limits: dict[QuotaKind, float] = {}

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
        return bool(self.throttles) or bool(self.shadows) or any(use.used or use.requests for use in self.uses.values())

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
