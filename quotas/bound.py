"""The counter of one quota kind that a session is bound to."""

from collections.abc import Callable

from quotas.admission_queue import NO_NUMBER, AdmissionQueue
from quotas.claims import Claims
from quotas.counted import NOTHING, Counted, CounterKey, CounterState
from quotas.debt import FOREVER_S, Debt
from quotas.entities import Entity
from quotas.fair_queue import Path
from quotas.fetches import SAVED_S, Fetches
from quotas.kinds import QuotaKind
from quotas.rate import AT_ONCE, Sample, Window
from quotas.shares import Demand


class Bound(Debt):
    """The counter that all sessions with the same tags share, and the limit that applies to it.

    Requests that must wait for its debt queue in ``queue``. The engine drops it when it is idle and nobody holds it.
    """

    __slots__ = (
        "_claims",
        "_fetches",
        "_handed_over",
        "_held_back",
        "_is_idle",
        "_turn_ms",
        "holders",
        "in_budget",
        "key",
        "max_delay_ms",
        "queue",
        "rule",
        "shadow_limit",
        "shadow_throttle_ms_total",
        "shadow_throttled_total",
        "share",
        "throttle_ms_total",
        "throttled_total",
    )

    def __init__(self, key: CounterKey, window: Window, cap_ms: int | None) -> None:
        super().__init__(window, None, cap_ms)
        self.key = key
        self.rule: Entity | None = None
        """The entity whose limit won; None: unlimited. If the rule is in shadow mode, ``limit`` is None."""
        self.shadow_limit: float | None = None
        """A limit that is measured but not enforced, beside ``limit`` or instead of it."""
        self.share = 1.0
        """The part of the rule's limit that ``limit`` is (``scope: cluster``)."""
        self._held_back: dict[Path, int] = {}
        """The clients, by user and address, that were held back by a share, and until when."""
        self.max_delay_ms: int | None = None
        """The longest throttle that the rule allows; None: no bound of its own."""
        self.shadow_throttled_total = 0
        self.shadow_throttle_ms_total = 0
        self.throttled_total = 0
        self.throttle_ms_total = 0
        self.queue: AdmissionQueue | None = None
        """The waiting requests; None until the first one."""
        self._claims: Claims | None = None
        self._fetches: Fetches | None = None
        self._handed_over = NOTHING
        self._turn_ms = AT_ONCE
        """When a request last passed despite a debt."""
        self.holders = 0
        """Accounts and simulations that may still charge it."""
        self._is_idle = False
        """It was idle when the engine last looked."""
        self.in_budget = True
        """Its names count in the engine's ``NameBudget``; not while it rests."""

    @property
    def kind(self) -> QuotaKind:
        return self.key.kind

    @property
    def is_cap(self) -> bool:
        """Whether its limit applies in addition to the quota that wins."""
        return self.rule is not None and self.rule.cap

    def hold(self) -> None:
        """Keep it, however long it is idle, until ``let_go``."""
        self.holders += 1

    def let_go(self) -> None:
        self.holders -= 1

    def rest(self) -> None:
        """Drop its samples, which have expired: whoever holds it may be idle for long."""
        self._is_idle = True
        self.reset()

    @property
    def rests(self) -> bool:
        """Whether it was idle, and has neither been charged nor throttled anybody since."""
        return self._is_idle and not self._samples

    # ------------------------------------------------------------------------------------------------- its share

    def hold_back(self, client: Path, until_ms: int) -> None:
        """Remember that a client waits, where the limit is shared with other processes."""
        if self.share < 1:
            self._held_back[client[:2]] = until_ms

    def demand(self, now_ms: int) -> Demand:
        """Return what is used of the whole limit, and how many clients wait for more."""
        limit = self.shadow_limit if self.limit is None else self.limit
        self._held_back = {client: until_ms for client, until_ms in self._held_back.items() if until_ms > now_ms}
        waiting = self._held_back.keys() | (self.queue.parties(2) if self.queue else set())
        return Demand(self.rate(now_ms) * self.share / limit if limit else 0.0, len(waiting))

    # ------------------------------------------------------------------------------------------ whose turn it is

    def waiting_ms(self, client: Path) -> int:
        """Estimate how long the waiting requests keep the counter in debt before the next request of ``client`` has its
        turn.
        """
        return int(self.queue.cost_before(client) / self._limit * 1000) if self.queue and self._limit else 0

    def queue_up(self, alarm: Callable[[AdmissionQueue, int], None]) -> AdmissionQueue:
        """Return the queue, for a request that has to wait; ``alarm`` is of a new ``AdmissionQueue``."""
        self.shut = True
        if self.queue is None:
            self.queue = AdmissionQueue(self.may_go, alarm)
        return self.queue

    def may_go(self, now_ms: int) -> int:
        """Return ``now_ms`` if a request may go now, ignoring those queued before it; else when to ask again."""
        owed_ms = self.owed_ms(now_ms)
        if owed_ms and self._cap_ms is not None:
            return self._turn_within_debt(now_ms, owed_ms)
        if owed_ms:
            return now_ms + owed_ms
        # A Produce may go when the previous throttle is over, as at a broker. A Fetch may go when Kafka's formula would
        # let its response pass now: on a new connection the time that the rate is taken over varies.
        if self._fetches is not None and (again_ms := self.check(now_ms)):
            return now_ms + again_ms
        self.shut = bool(self.queue) or self.promised != NO_NUMBER
        return now_ms if self._fetches is None else self._fetches.may_go(now_ms)

    @property
    def saves_s(self) -> float:
        """While fetches wait, little remains. Otherwise those would use what Kafka's window gives back as a burst, as
        the window gives it back at once, and wait for its return: eight seconds out of eleven (docs/decisions/0049).
        """
        return FOREVER_S if self._fetches is None or not self.queue else SAVED_S

    def _turn_within_debt(self, now_ms: int, owed_ms: int) -> int:
        """Pass at least one request per window where throttles are capped to a window, as at a broker."""
        moment_ms = min(now_ms + owed_ms, self._turn_ms + (self._cap_ms or 0))
        if moment_ms > now_ms:
            return moment_ms
        self._turn_ms = now_ms
        return now_ms

    @property
    def fetches(self) -> Fetches:
        """The fetches in flight."""
        if self._fetches is None:
            self._fetches = Fetches(self)
        return self._fetches

    @property
    def claims(self) -> Claims:
        """The claims of requests that are still to come, or to go."""
        if self._claims is None:
            self._claims = Claims(self)
        return self._claims

    @property
    def promised(self) -> int:
        """The number of the request that may pass despite a debt."""
        return NO_NUMBER if self._claims is None else self._claims.promised

    def busy_ms(self, now_ms: int) -> int:
        """Return how long the counter must be kept: while it is in debt, or a waiting request, a promise or a Fetch in
        flight needs it.
        """
        is_needed = bool(self.queue) or self.promised != NO_NUMBER or bool(self._fetches)
        return self.owed_ms(now_ms) or (self._window.size_ms if is_needed else 0)

    def needed_ms(self, now_ms: int) -> int:
        """Return how long the counter is not idle: while it is busy, or has usage in its window."""
        last_ms = self.last_ms
        busy_ms = self.busy_ms(now_ms)
        return busy_ms if busy_ms or last_ms is None else max(last_ms + self._window.keep_ms - now_ms, 0)

    # --------------------------------------------------------------------------------------------- what is recorded

    @property
    def mark(self) -> tuple[Sample, int]:
        """The sample of the last charge, for ``take_back``."""
        return self._current, self._current.start_ms

    def take_back(self, value: float, mark: tuple[Sample, int]) -> None:
        """Undo the part of a charge that never arrived; does nothing if its sample has expired."""
        sample, start_ms = mark
        if sample.start_ms == start_ms and sample.sum >= value and sample in self._samples:
            sample.sum -= value
            if sample is not self._current:
                self._left -= value
            self._settle()

    def count_throttle(self, throttle_ms: int) -> None:
        """Count a throttle that was applied, for the metrics."""
        self._is_idle = False
        self.throttled_total += 1
        self.throttle_ms_total += throttle_ms

    def count_shadow(self, throttle_ms: int) -> None:
        """Count a throttle that ``shadow_limit`` would have caused."""
        self._is_idle = False
        self.shadow_throttled_total += 1
        self.shadow_throttle_ms_total += throttle_ms

    def usage(self, now_ms: int) -> CounterState | None:
        """Return the counter's state; None if it rests, or has neither an enforced nor a shadow limit."""
        if self.rule is None or self.rests:
            return None
        return CounterState(
            self.key.kind,
            self.key.user,
            self.key.client_id,
            self.key.broker,
            self.rule,
            self.limit if self.limit is None else self.limit / self.share,
            self.rate(now_ms),
            self.recorded_total,
            self.throttled_total,
            self.throttle_ms_total,
            shadow_limit=self.shadow_limit if self.shadow_limit is None else self.shadow_limit / self.share,
            shadow_throttled_total=self.shadow_throttled_total,
            shadow_throttle_ms_total=self.shadow_throttle_ms_total,
        )

    def take_counted(self) -> Counted:
        """Return the totals since the previous call: each unit once, however long the counter lives.

        Charges that were given back are not returned again.
        """
        before = self._handed_over
        now = Counted(
            max(self.recorded_total, before.charged),
            self.throttled_total,
            self.throttle_ms_total,
            self.shadow_throttled_total,
            self.shadow_throttle_ms_total,
        )
        if now == before:
            return NOTHING
        self._handed_over = now
        return now.minus(before)


class Inert(Bound):
    """The counter of clients without any configured quota of the kind: it records nothing."""

    __slots__ = ()

    def charge(self, value: float, now_ms: int) -> int:  # noqa: ARG002  the interface of Bound
        return 0

    def record(self, value: float, now_ms: int) -> None:
        pass

    def check(self, now_ms: int) -> int:  # noqa: ARG002  the interface of Bound
        return 0
