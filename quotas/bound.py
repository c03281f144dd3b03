"""One counter under one quota kind, as a session holds it."""

from typing import TYPE_CHECKING, Final, NamedTuple

from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.rate import Rate, Window

if TYPE_CHECKING:
    from quotas.engine import Counters


FOLDED: Final = "other"
"""The user and the client-id under which counters are summed up that are too many to be told apart."""


class CounterKey(NamedTuple):
    """What tells one counter from another; user and client_id are tags, "" where that part plays no role."""

    kind: QuotaKind
    user: str
    client_id: str
    broker: int


class Counted(NamedTuple):
    """What only grows: the charged units (bytes for byte rates), throttled requests, milliseconds of throttle."""

    charged: float = 0.0
    throttled: int = 0
    throttle_ms: int = 0

    def plus(self, other: "Counted") -> "Counted":
        return Counted(
            self.charged + other.charged, self.throttled + other.throttled, self.throttle_ms + other.throttle_ms
        )


_NOTHING: Final = Counted()


class Gone(NamedTuple):
    """What a counter has counted that is there no more, and whose limit held for it."""

    key: CounterKey
    entity: Entity
    counted: Counted


class Usage(NamedTuple):
    """What one counter stood at; ``rate`` is in the unit of ``limit``, over the window of enforcement."""

    kind: QuotaKind
    user: str
    client_id: str
    broker: int
    entity: Entity
    limit: float
    rate: float
    charged_total: float
    throttled_total: int
    throttle_ms_total: int


class Bound(Rate):
    """The counter that all sessions with the same tags share, and the limit that holds for it.

    A bound that its engine dropped, because it held nothing any more, may still be held by a session: with its next
    charge it takes its place again, or hands everything on to the bound that took it in the meantime.
    """

    __slots__ = ("_counters", "_handed_over", "_live", "key", "rule", "throttle_ms_total", "throttled_total")

    def __init__(self, key: CounterKey, window: Window, cap_ms: int | None, counters: "Counters") -> None:
        super().__init__(window, None, cap_ms)
        self.key = key
        self.rule: Entity | None = None
        """The entity whose limit won; None: unlimited."""
        self.throttled_total = 0
        self.throttle_ms_total = 0
        self._handed_over = _NOTHING
        self._counters = counters
        self._live: Bound | None = None

    @property
    def kind(self) -> QuotaKind:
        return self.key.kind

    @property
    def user(self) -> str:
        return self.key.user

    @property
    def client_id(self) -> str:
        return self.key.client_id

    @property
    def broker(self) -> int:
        return self.key.broker

    def entered(self) -> None:
        """Its engine has taken it in: this is the one bound for its key."""
        self._live = self

    def dropped(self) -> None:
        """Its engine has let it go; nothing that it recorded counts any more."""
        self._live = None
        self.reset()

    def record(self, value: float, now_ms: int) -> None:
        live = self._live or self._find_live()
        if live is self:
            super().record(value, now_ms)
        else:
            live.record(value, now_ms)

    def check(self, now_ms: int) -> int:
        live = self._live or self._find_live()
        return super().check(now_ms) if live is self else live.check(now_ms)

    def note_throttle(self, throttle_ms: int) -> None:
        """Count a throttle that was applied, for the metrics."""
        live = self._live or self._find_live()
        live.throttled_total += 1
        live.throttle_ms_total += throttle_ms

    def usage(self, now_ms: int) -> Usage | None:
        """Return what this counter stands at; None when it has no limit."""
        if self.limit is None or self.rule is None:
            return None
        return Usage(
            *self.key,
            self.rule,
            self.limit,
            self.rate(now_ms),
            self.recorded_total,
            self.throttled_total,
            self.throttle_ms_total,
        )

    def take_counted(self) -> Counted:
        """Return what was counted since this was called last: each unit once, however long the counter lives.

        What was charged and then given back is not returned again.
        """
        before, charged = self._handed_over, self.recorded_total
        if self.throttled_total == before.throttled and charged <= before.charged:
            return _NOTHING
        now = Counted(max(charged, before.charged), self.throttled_total, self.throttle_ms_total)
        self._handed_over = now
        return Counted(
            now.charged - before.charged, now.throttled - before.throttled, now.throttle_ms - before.throttle_ms
        )

    def _find_live(self) -> "Bound":
        self._live = self._counters.enter(self)
        return self._live


class Inert(Bound):
    """For a client that no quota of this kind can concern, because none was ever configured: nothing is kept."""

    __slots__ = ()

    def charge(self, value: float, now_ms: int) -> int:  # noqa: ARG002  the face of Bound
        return 0

    def record(self, value: float, now_ms: int) -> None:
        pass

    def check(self, now_ms: int) -> int:  # noqa: ARG002  the face of Bound
        return 0

    def note_throttle(self, throttle_ms: int) -> None:
        pass
