"""One counter under one quota kind, as a session holds it."""

from math import ceil, inf
from typing import TYPE_CHECKING, Final

from quotas.counted import NOTHING, Counted, CounterKey, CounterState
from quotas.entities import Entity
from quotas.fetches import Fetches
from quotas.kinds import QuotaKind
from quotas.line import Line
from quotas.rate import AT_ONCE, Rate, Sample, Window
from quotas.throttle import INT32_MAX

if TYPE_CHECKING:
    from quotas.counters import Counters

FOREVER_S: Final = INT32_MAX / 1000
WAIVED_AHEAD_MS: Final = 10_000
MOST_WINDOWS: Final = 2
"""So many windows' worth are remembered where throttles are capped: one more than is allowed at once."""


class Bound(Rate):
    """The counter that all sessions with the same tags share, and the limit that holds for it.

    It is in debt until Kafka's throttle time of what was charged is over, whichever connection that came on; and it
    forgets nothing of what went beyond its window's worth and its limit since, where Kafka forgets samples that are N
    windows old, whatever was sent in them. Who has to wait for that stands in ``line``.

    A bound that its engine dropped, because it held nothing any more, may still be held by a session: with its next
    charge it takes its place again, or hands everything on to the bound that took it in the meantime.
    """

    __slots__ = (
        "_ahead_ms",
        "_counted",
        "_counters",
        "_fetches",
        "_handed_over",
        "_level",
        "_level_ms",
        "_live",
        "_until_ms",
        "_waived_ms",
        "key",
        "line",
        "max_delay_ms",
        "rule",
        "shadow_limit",
        "shadow_throttle_ms_total",
        "shadow_throttled_total",
        "shut",
        "streamer",
        "throttle_ms_total",
        "throttled_total",
    )

    def __init__(self, key: CounterKey, window: Window, cap_ms: int | None, counters: "Counters") -> None:
        super().__init__(window, None, cap_ms)
        self.key = key
        self.rule: Entity | None = None
        """The entity whose limit won; None: unlimited. In shadow it limits nobody: ``limit`` is None."""
        self.shadow_limit: float | None = None
        """What is measured beside ``limit``, or instead of it, and holds nobody."""
        self.max_delay_ms: int | None = None
        """The most that any one throttle may delay, by its rule; None: as for all."""
        self.shadow_throttled_total = 0
        self.shadow_throttle_ms_total = 0
        self.throttled_total = 0
        self.throttle_ms_total = 0
        self.shut = False
        """Requests have to ask ``may_go`` before they are charged. While it is False none need to."""
        self.line: Line | None = None
        """Those who wait, once there was somebody."""
        self.streamer: object | None = None
        """Whose request is coming in that is more than the limit has left: one at a time, the others wait for it."""
        self._fetches: Fetches | None = None
        self._until_ms = AT_ONCE
        """When the longest throttle time is over that a charge has asked for."""
        self._ahead_ms = AT_ONCE
        """When the limit has made good what went within a debt."""
        self._waived_ms = AT_ONCE
        """When a part of the limit has made good what was not charged (``waive``)."""
        self._level = 0.0
        """What was recorded and not yet made good by the limit: a bucket that leaks T a second, at ``_level_ms``."""
        self._level_ms = AT_ONCE
        self._counted = 0.0
        self._handed_over = NOTHING
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

    @property
    def is_cap(self) -> bool:
        """Its limit holds besides the quota that wins."""
        return self.rule is not None and self.rule.cap

    @property
    def live(self) -> "Bound":
        """The one bound for its key: most often itself."""
        return self._live or self._find_live()

    def entered(self) -> None:
        """Its engine has taken it in: this is the one bound for its key."""
        self._live = self
        self.shut = False

    def dropped(self) -> None:
        """Its engine has let it go; nothing that it recorded counts any more."""
        self._live = None
        self.shut = True
        self.reset()

    # ------------------------------------------------------------------------------------------ whose turn it is

    def owe(self, throttle_ms: int, now_ms: int) -> None:
        """Be in debt for the throttle time that a charge has asked for. To be called on the live bound."""
        self._until_ms = max(self._until_ms, now_ms + throttle_ms)
        self.shut = True

    def may_bring_forward(self, now_ms: int, most_ms: int) -> bool:
        """Whether a request may go within a debt: no more than ``most_ms`` worth of what has gone so is still owed."""
        return bool(self._limit) and self._ahead_ms <= now_ms + most_ms

    def bring_forward(self, value: float, now_ms: int) -> None:
        """Owe what was charged within a debt, as a debt by itself. To be called with what came, not what was claimed.

        Kafka's throttle time forgets what is a window old: a client that went ahead again and again would get what it
        may owe on top of the quota, each window anew.
        """
        if self._limit:
            self._ahead_ms = max(self._ahead_ms, now_ms) + ceil(value / self._limit * 1000)
            self.shut = True

    def waive(self, value: float, part: float, now_ms: int) -> bool:
        """Whether ``value`` need not be charged: such values are no more than that part of the limit, all together.

        At once it may be ten seconds' worth of that part. To be called on the live bound.
        """
        if not self._limit:
            return False
        waived_ms = max(self._waived_ms, now_ms) + ceil(min(value / (self._limit * part), FOREVER_S) * 1000)
        if waived_ms > now_ms + WAIVED_AHEAD_MS:
            return False
        self._waived_ms = waived_ms
        return True

    def owed_ms(self, now_ms: int) -> int:
        """Return for how long the counter is still in debt, 0 if it is not."""
        if self._limit is None:
            return 0
        debt_ms = max(self._until_ms, self._ahead_ms) - now_ms
        self._drain(now_ms)
        # One window of N samples, where Kafka allows N - 1 and what has gone by of the next: never the stricter one.
        beyond = self._level - self._limit * (self._window.keep_ms / 1000)
        if beyond > 0:
            debt_ms = max(debt_ms, ceil(min(beyond / self._limit, FOREVER_S) * 1000) if self._limit else INT32_MAX)
        return max(debt_ms, 0)

    @property
    def waiting_ms(self) -> int:
        """For how long those who wait will keep it in debt, as far as that is known."""
        return int(self.line.cost / self._limit * 1000) if self.line and self._limit else 0

    def may_go(self, now_ms: int) -> int:
        """Return ``now_ms`` if a request may go now, as far as others have not come before it; else when to ask again.

        To be called on the live bound.
        """
        owed_ms = self.owed_ms(now_ms)
        if owed_ms:
            return now_ms + owed_ms
        # A Produce goes when the throttle of the one before is over, as at a broker. A Fetch goes when Kafka's law
        # would let its answer pass now: for a new connection the time that the rate is taken over goes up and down. So
        # do all where throttles are capped, or one request for each cap would go, whatever it takes.
        if (self._fetches is not None or self._cap_ms is not None) and (again_ms := self.check(now_ms)):
            return now_ms + again_ms
        self.shut = bool(self.line)
        return now_ms if self._fetches is None else self._fetches.may_go(now_ms)

    def headroom(self, now_ms: int) -> float:
        """Return how much may be recorded now without a debt; negative within one."""
        if self._limit is None:
            return inf
        self.purge(now_ms)
        self._drain(now_ms)
        used = self._elsewhere
        for sample in self._samples:
            used += sample.sum
        return min(
            self._window.allowance(self._limit) - used, self._limit * (self._window.keep_ms / 1000) - self._level
        )

    def fits(self, value: float, now_ms: int) -> bool:
        """Whether ``value`` may be recorded now without a debt, as far as a few additions can tell: True is certain.

        To be called on the live bound.
        """
        if self.shut or self._limit is None or now_ms >= self._due_ms:
            return False
        sample = self._current
        level = self._level + self._left + sample.sum - self._counted  # what was made good since is left out
        return sample.sum + value <= self._headroom and level + value <= self._limit * (self._window.keep_ms / 1000)

    @property
    def fetches(self) -> Fetches:
        """The fetches that are under way."""
        if self._fetches is None:
            self._fetches = Fetches(self)
        return self._fetches

    @property
    def holds(self) -> bool:
        """Somebody waits for it or has a Fetch under way: it has to stay."""
        return bool(self.line) or bool(self._fetches)

    def busy_ms(self, now_ms: int) -> int:
        """Return how long it has to stay in any case: while it is in debt, or somebody needs it."""
        return self.owed_ms(now_ms) or (self._window.size_ms if self.holds else 0)

    def rejudge(self, now_ms: int) -> None:
        """Take another limit for what is owed too: who waits goes on as soon as the new one allows it."""
        self._until_ms = self._ahead_ms = AT_ONCE
        if self._limit is not None and (throttle_ms := self.check(now_ms)):
            self.owe(throttle_ms, now_ms)

    def forgive(self, now_ms: int) -> None:
        """Owe what the window holds, and no more than a window's throttle: nobody was held for what went beyond it."""
        self._drain(now_ms)
        if self._limit is not None:
            most = self._limit * (self._window.keep_ms / 1000)
            self._level = min(self._level, most)
            self.shrink(most, now_ms)
        self.rejudge(now_ms)

    def _drain(self, now_ms: int) -> None:
        """Count what was recorded since the last time, and take off what the limit has made good."""
        if self._limit is None:
            self._level = 0.0
            self._level_ms = now_ms
        else:
            self._make_good(min(self._current.last_ms, now_ms))  # what is recorded was recorded before then
            self._level = max(self._level + self.recorded_total - self._counted, 0.0)
            if self._cap_ms is not None:  # what one pause of a broker's has made of all requests under way is forgotten
                self._level = min(self._level, self._limit * (MOST_WINDOWS * self._window.keep_ms / 1000))
            self._make_good(now_ms)
        self._counted = self.recorded_total

    def _make_good(self, now_ms: int) -> None:
        if self._limit is not None and now_ms > self._level_ms:
            self._level = max(self._level - self._limit * (now_ms - self._level_ms) / 1000, 0.0)
            self._level_ms = now_ms

    def _roll(self, now_ms: int) -> None:
        self._drain(now_ms)
        super()._roll(now_ms)

    # --------------------------------------------------------------------------------------------- what is recorded

    def record(self, value: float, now_ms: int) -> None:
        live = self._live or self._find_live()
        if live is self:
            super().record(value, now_ms)
        else:
            live.record(value, now_ms)

    def check(self, now_ms: int) -> int:
        live = self._live or self._find_live()
        return super().check(now_ms) if live is self else live.check(now_ms)

    @property
    def mark(self) -> tuple[Sample, int]:
        """Where the last charge was recorded: to take it back by."""
        live = self.live
        return live._current, live._current.start_ms  # noqa: SLF001  another of its kind

    def take_back(self, value: float, mark: tuple[Sample, int]) -> None:
        """Take back of a charge what never came, as if it had not been recorded; nothing of it where it has expired."""
        live = self.live
        sample, start_ms = mark
        if sample.start_ms == start_ms and sample.sum >= value and sample in live._samples:  # noqa: SLF001
            sample.sum -= value
            if sample is not live._current:  # noqa: SLF001
                live._left -= value  # noqa: SLF001
            live._settle()  # noqa: SLF001

    def note_throttle(self, throttle_ms: int) -> None:
        """Count a throttle that was applied, for the metrics."""
        live = self._live or self._find_live()
        live.throttled_total += 1
        live.throttle_ms_total += throttle_ms

    def note_shadow(self, throttle_ms: int) -> None:
        """Count a throttle that ``shadow_limit`` would have given."""
        live = self._live or self._find_live()
        live.shadow_throttled_total += 1
        live.shadow_throttle_ms_total += throttle_ms

    def note_wait(self, waited_ms: int) -> None:
        """Count how long a request has waited in line: time that it was throttled for and not told."""
        if waited_ms:
            self.note_throttle(waited_ms)

    def usage(self, now_ms: int) -> CounterState | None:
        """Return what this counter stands at; None when it has no limit, in force or in shadow."""
        if self.rule is None:
            return None
        return CounterState(
            self.key.kind,
            self.key.user,
            self.key.client_id,
            self.key.broker,
            self.rule,
            self.limit,
            self.rate(now_ms),
            self.recorded_total,
            self.throttled_total,
            self.throttle_ms_total,
            shadow_limit=self.shadow_limit,
            shadow_throttled_total=self.shadow_throttled_total,
            shadow_throttle_ms_total=self.shadow_throttle_ms_total,
        )

    def take_counted(self) -> Counted:
        """Return what was counted since this was called last: each unit once, however long the counter lives.

        What was charged and then given back is not returned again.
        """
        before, charged = self._handed_over, self.recorded_total
        throttled, shadow_throttled = self.throttled_total, self.shadow_throttled_total
        if throttled == before.throttled and charged <= before.charged and shadow_throttled == before.shadow_throttled:
            return NOTHING
        now = Counted(
            max(charged, before.charged),
            throttled,
            self.throttle_ms_total,
            shadow_throttled,
            self.shadow_throttle_ms_total,
        )
        self._handed_over = now
        return Counted(
            now.charged - before.charged,
            now.throttled - before.throttled,
            now.throttle_ms - before.throttle_ms,
            now.shadow_throttled - before.shadow_throttled,
            now.shadow_throttle_ms - before.shadow_throttle_ms,
        )

    def _find_live(self) -> "Bound":
        self._live = self._counters.enter(self)
        return self._live


class Inert(Bound):
    """For a client that no quota of this kind can concern, because none was ever configured: nothing is kept."""

    __slots__ = ()

    @property
    def live(self) -> "Bound":
        return self

    def charge(self, value: float, now_ms: int) -> int:  # noqa: ARG002  the face of Bound
        return 0

    def record(self, value: float, now_ms: int) -> None:
        pass

    def check(self, now_ms: int) -> int:  # noqa: ARG002  the face of Bound
        return 0

    def note_throttle(self, throttle_ms: int) -> None:
        pass
