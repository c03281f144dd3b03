"""One counter under one quota kind, as a session holds it."""

from typing import TYPE_CHECKING

from quotas.counted import NOTHING, Counted, CounterKey, CounterState
from quotas.debt import Debt
from quotas.entities import Entity
from quotas.fair_queue import Path
from quotas.fetches import Fetches
from quotas.kinds import QuotaKind
from quotas.line import NO_NUMBER, Line
from quotas.rate import AT_ONCE, Sample, Window

if TYPE_CHECKING:
    from quotas.counters import Counters


class Bound(Debt):
    """The counter that all sessions with the same tags share, and the limit that holds for it.

    Who has to wait for its debt stands in ``line``.

    A bound that its engine dropped, because it held nothing any more, may still be held by a session: with its next
    charge it takes its place again, or hands everything on to the bound that took it in the meantime.
    """

    __slots__ = (
        "_counters",
        "_fetches",
        "_handed_over",
        "_live",
        "_turn_ms",
        "claims_from_ms",
        "key",
        "line",
        "max_delay_ms",
        "promised",
        "rule",
        "shadow_limit",
        "shadow_throttle_ms_total",
        "shadow_throttled_total",
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
        self.line: Line | None = None
        """Those who wait, once there was somebody."""
        self.promised = NO_NUMBER
        """The number of the request that may pass whatever is owed (``promise``)."""
        self.streamer: object | None = None
        """Whose request is coming in that is more than the limit has left: one at a time, the others wait for it."""
        self.claims_from_ms = AT_ONCE
        """From then on others wait for a request to come, by what it announces."""
        self._fetches: Fetches | None = None
        self._handed_over = NOTHING
        self._turn_ms = AT_ONCE
        """When one was let go within a debt last."""
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

    def waiting_ms(self, client: Path) -> int:
        """For how long those who wait will keep it in debt before the next request of ``client`` has its turn, as far
        as that is known.
        """
        return int(self.line.cost_before(client) / self._limit * 1000) if self.line and self._limit else 0

    def promise(self, number: int, value: float) -> bool:
        """Promise a request that waits at another counter to let it pass when it comes again, whatever is owed by then.

        Nobody waits for it: ``value``, its charge, is only set aside, so that all together get no more. There is one
        promise at a time; the oldest request, by its number, takes it over. Returns whether it was given.
        """
        if self.promised and self.promised < number:
            return False
        self.promised = number
        self._aside = value
        self.shut = True
        return True

    def end_promise(self, number: int) -> None:
        """Take the promise back: that request has gone, or will not come."""
        if self.promised == number:
            self.promised = NO_NUMBER
            self._aside = 0.0

    def may_go(self, now_ms: int) -> int:
        """Return ``now_ms`` if a request may go now, as far as others have not come before it; else when to ask again.

        To be called on the live bound.
        """
        owed_ms = self.owed_ms(now_ms)
        if owed_ms and self._cap_ms is not None:
            return self._turn_within_debt(now_ms, owed_ms)
        if owed_ms:
            return now_ms + owed_ms
        # A Produce goes when the throttle of the one before is over, as at a broker. A Fetch goes when Kafka's law
        # would let its answer pass now: for a new connection the time that the rate is taken over goes up and down.
        if self._fetches is not None and (again_ms := self.check(now_ms)):
            return now_ms + again_ms
        self.shut = bool(self.line) or self.promised != NO_NUMBER
        return now_ms if self._fetches is None else self._fetches.may_go(now_ms)

    def _turn_within_debt(self, now_ms: int, owed_ms: int) -> int:
        """Let one go in each window at the least, where no throttle is longer than that: a broker's client gets on."""
        moment_ms = min(now_ms + owed_ms, self._turn_ms + (self._cap_ms or 0))
        if moment_ms > now_ms:
            return moment_ms
        self._turn_ms = now_ms
        return now_ms

    @property
    def fetches(self) -> Fetches:
        """The fetches that are under way."""
        if self._fetches is None:
            self._fetches = Fetches(self)
        return self._fetches

    @property
    def holds(self) -> bool:
        """Somebody waits for it, or elsewhere with its promise, or has a Fetch under way: it has to stay."""
        return bool(self.line) or self.promised != NO_NUMBER or bool(self._fetches)

    def busy_ms(self, now_ms: int) -> int:
        """Return how long it has to stay in any case: while it is in debt, or somebody needs it."""
        return self.owed_ms(now_ms) or (self._window.size_ms if self.holds else 0)

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
