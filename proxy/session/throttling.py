"""From a throttle time to connections that wait: mode, ceilings, and delay queues with one timer each."""

from collections import Counter, deque
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from proxy.runtime.faults import contained
from proxy.usage.accounts import Account
from quotas.admission_queue import AdmissionQueue, Place
from quotas.counted import CLUSTER
from quotas.delay_queue import DelayQueue, Handle
from quotas.engine import Bound
from quotas.imagined import Imagined, Throttle
from quotas.kinds import QuotaKind

log = structlog.get_logger("sluice.throttle")


AT_ONCE: Final = 50
"""Clients that go on in one turn of the loop: each reads, or forwards, what has waited with it."""


class Muted(Protocol):
    """A member of a delay queue: a session that is not read until its throttle time is over, or a counter's queue."""

    def throttle_over(self, now_ms: int) -> None:
        """Read again, unless another reason forbids it."""
        ...

    def abort(self) -> None:
        """End: to be read again has failed."""
        ...


Alarm = Handle[Muted]


class Timer(Protocol):
    """A call that may be cancelled (asyncio.TimerHandle)."""

    def cancel(self) -> None: ...


class Throttling:
    """Applies what the engine computed: ``enforce`` mutes and holds, ``shadow`` only counts, ``off`` never asks.

    ``call_later(delay_s, callback)`` and ``clock`` are the loop's; nothing else here knows that there is one.
    """

    def __init__(
        self,
        *,
        mode: str,
        window_ms: int,
        max_delay_ms: int | None,
        max_hold_ms: int,
        call_later: Callable[[float, Callable[[], None]], Timer],
        clock: Callable[[], int],
    ) -> None:
        self._mode = mode
        self.enforces = mode == "enforce"
        """Whether what is allowed is also applied."""
        self.counts = mode != "off"
        """Whether what is used is judged, applied or not."""
        self.window_ms = window_ms
        self.max_delay_ms = max_delay_ms
        """The most that any one throttle may delay."""
        self.max_hold_ms = max_hold_ms
        """The most that a Fetch may wait before it is answered with nothing."""
        self._call_later = call_later
        self._clock = clock
        self._queues: dict[QuotaKind, DelayQueue[Muted]] = {kind: DelayQueue() for kind in QuotaKind}
        self._alarms: DelayQueue[Muted] = DelayQueue()
        """The moments at which counters' queues are looked at again, and at which waits in them end early."""
        self._timers: dict[int, tuple[int, Timer]] = {}
        self._to_ask: deque[tuple[AdmissionQueue, Place]] = deque()
        """The places in dissolved queues whose requests ask again."""
        self._all_go = False
        """Everybody is to go who is muted."""
        self._goes_on = False
        """A turn of the loop is asked for to go on with that."""
        self._admission: dict[AdmissionQueue, Alarm] = {}
        """The counters' queues in which somebody waits."""
        self._waiting: Counter[QuotaKind] = Counter()
        self._imagined: dict[tuple[Bound, bool], Imagined[Account]] = {}
        """The counters as they would be under a limit that holds nobody: that in force while the mode is ``shadow``
        (False), or that of a rule that has one in shadow (True)."""
        self.answered_empty = 0
        """Fetches that were answered with nothing."""
        self.dropped = 0
        """Requests that were dropped at their turn, because their clients had closed."""

    def note(self, bound: Bound, throttle_ms: int) -> None:
        """Count a throttle given, or in shadow one that would have been, under ``bound``."""
        if bound.throttled_total == 0:
            self._log_first(bound, throttle_ms)
        bound.note_throttle(throttle_ms)

    def given(self, account: Account, kind: QuotaKind, bound: Bound, throttle_ms: int, now_ms: int) -> None:
        """Count a throttle that a request of ``account`` was given."""
        self.note(bound, throttle_ms)
        account.meter.note_throttle(kind, throttle_ms, now_ms)
        if bound.rule is not None and bound.is_cap:
            account.meter.note_cap(kind, bound.rule, throttle_ms, now_ms)

    def allow(self, throttle_ms: int, bound: Bound | None = None) -> int:
        """Return the most of ``throttle_ms`` that may be applied at once; the rest stays owed."""
        most_ms = self.max_delay_ms if bound is None else self.most_delay_ms(bound)
        return throttle_ms if most_ms is None else min(throttle_ms, most_ms)

    def most_delay_ms(self, bound: Bound) -> int | None:
        """Return the most that one throttle under ``bound`` may delay: what its rule says, or what goes for all."""
        return self.max_delay_ms if bound.max_delay_ms is None else bound.max_delay_ms

    def strictest(self, account: Account, kind: QuotaKind, now_ms: int) -> Bound:
        """Let each counter of an account owe what it is over its limit; return the one that delays it for longest."""
        strictest, longest_ms = account.bound(kind), -1
        for bound in account.bounds(kind):
            counter = bound.live
            if throttle_ms := counter.check(now_ms):
                counter.owe(throttle_ms, now_ms)
            delay_ms = self.allow(max(throttle_ms, counter.owed_ms(now_ms)), counter)
            if throttle_ms and delay_ms > longest_ms:
                strictest, longest_ms = bound, delay_ms
        return strictest

    def set_mode(self, mode: str, now_ms: int) -> None:
        """Be in another mode from now on. Unless it enforces, everybody goes who is muted or waits, some at a time."""
        self.tidy(now_ms)
        self._mode = mode
        self.enforces = mode == "enforce"
        self._imagined.clear()  # what still waits in the model would have its throttles in a mode that has none
        self._all_go = not self.enforces
        if self._all_go:
            self.reconsider(now_ms)

    # ------------------------------------------------------------------------------------------------ shadow

    def imagine(self, account: Account, kind: QuotaKind, size: float, now_ms: int, connection: int = 0) -> None:
        """Count what would have become of ``size`` charged to ``account``, in units of ``kind`` times s.

        In shadow under the limit in force, and in any mode under the limit that its rule has in shadow.
        """
        for each in account.bounds(kind):
            bound = each.live
            for is_shadow, limit in ((False, bound.limit), (True, bound.shadow_limit)):
                if limit is not None and (is_shadow or self._mode == "shadow"):
                    imagined = self._imagined_under(bound, is_shadow, limit)
                    imagined.arrive(size, account, now_ms, connection)
                    self._settle(bound, is_shadow, imagined, now_ms)

    def _imagined_under(self, bound: Bound, is_shadow: bool, limit: float) -> Imagined[Account]:
        """Return the counter as it would be under ``limit``, and its window."""
        imagined = self._imagined.get((bound, is_shadow))
        if imagined is None or imagined.window != bound.window:
            cap_ms = bound.window.size_ms if bound.kind.row.capped else None
            imagined = self._imagined[bound, is_shadow] = Imagined(bound.window, limit, cap_ms)
        imagined.limit(limit)
        return imagined

    def _settle(self, bound: Bound, is_shadow: bool, imagined: Imagined[Account], now_ms: int) -> None:
        begun = imagined.settle(now_ms)
        for account, throttle_ms, at_ms in sorted(begun + imagined.take_waited(), key=_ends):
            meter = account.live_meter
            if is_shadow:
                bound.note_shadow(throttle_ms)
                meter.note_shadow(bound.kind, throttle_ms, now_ms, at_ms)
                continue
            self.note(bound, throttle_ms)
            meter.note_throttle(bound.kind, throttle_ms, now_ms, at_ms)
            if bound.rule is not None and bound.is_cap:
                meter.note_cap(bound.kind, bound.rule, throttle_ms, now_ms, at_ms)

    # ------------------------------------------------------------------------------------------------- mutes

    def mute(self, kind: QuotaKind, session: Muted, end_ms: int) -> Alarm:
        """Call ``session.throttle_over`` at ``end_ms``; the handle is for ``unmute``."""
        queue = self._queues[kind]
        handle = queue.add(end_ms, session)
        self._arm(queue)
        return handle

    def unmute(self, kind: QuotaKind, handle: Alarm) -> None:
        """Forget a mute before its time: the connection is gone, or muted for longer."""
        self._queues[kind].discard(handle)

    def queue_sizes(self) -> dict[QuotaKind, int]:
        """Return how many connections are muted or wait in a counter's queue now, by the quota kind that keeps them."""
        return {kind: len(queue) + self._waiting[kind] for kind, queue in self._queues.items()}

    # --------------------------------------------------------------------------------------------- admission

    def queue_of(self, bound: Bound) -> AdmissionQueue:
        """Return the queue of a counter, its live bound."""
        if bound.queue is None:
            bound.queue = AdmissionQueue(bound.may_go, self.alarm)
        return bound.queue

    def alarm(self, queue: AdmissionQueue, moment_ms: int) -> None:
        """Let ``queue`` look again at that moment, or earlier."""
        armed = self._admission.get(queue)
        if armed is not None:
            if armed.waiting and armed.end_ms <= moment_ms:
                return
            self._alarms.discard(armed)
        self._admission[queue] = self.wake(queue, moment_ms)

    def wake(self, sleeper: Muted, moment_ms: int) -> Alarm:
        """Call ``sleeper.throttle_over`` at that moment; the handle is for ``unwake``."""
        handle = self._alarms.add(moment_ms, sleeper)
        self._arm(self._alarms)
        return handle

    def unwake(self, handle: Alarm) -> None:
        """Forget a call before its time."""
        self._alarms.discard(handle)

    def reconsider(self, now_ms: int) -> None:
        """Let everybody who waits ask again, some at a time: other limits are in force."""
        for queue in list(self._admission):
            contained("line", self._dissolve, queue)
        if not self._goes_on:
            self._go_on(now_ms)

    def _dissolve(self, queue: AdmissionQueue) -> None:
        self._to_ask.extend([(queue, place) for place in queue.dissolve()])

    def _go_on(self, now_ms: int) -> None:
        """Let the next ones ask again, and then the next ones go who are muted, if all are to go."""
        self._goes_on = False
        left = AT_ONCE
        while left and self._to_ask:
            queue, place = self._to_ask.popleft()
            contained("line", queue.send_on, place, now_ms)
            left -= 1
        for delayed in (*self._queues.values(), self._alarms) if self._all_go else ():
            for muted in delayed.due(None, left):
                contained("throttle over", muted.throttle_over, now_ms, otherwise=muted.abort)
                left -= 1
        if not left:
            self._goes_on = True
            self._call_later(0.0, lambda: self._go_on(self._clock()))
        else:
            self._all_go = False

    def tidy(self, now_ms: int) -> None:
        """Forget the queues in which nobody waits, and in shadow count what would have happened until now."""
        self._admission = {queue: alarm for queue, alarm in self._admission.items() if queue or alarm.waiting}
        for (bound, is_shadow), imagined in list(self._imagined.items()):
            self._settle(bound, is_shadow, imagined, now_ms)
            if imagined.over(now_ms) or (is_shadow and bound.shadow_limit is None):
                del self._imagined[bound, is_shadow]

    def note_wait(self, bound: Bound) -> None:
        """Count one that begins to wait."""
        self._waiting[bound.kind] += 1

    def note_waited(self, bound: Bound, waited_ms: int) -> None:
        """Count one that has waited so long."""
        self._waiting[bound.kind] -= 1
        bound.note_wait(waited_ms)

    # ------------------------------------------------------------------------------------------------ timers

    def _arm(self, queue: DelayQueue[Muted]) -> None:
        end_ms = queue.next_end()
        armed = self._timers.get(id(queue))
        if end_ms is None or (armed is not None and armed[0] <= end_ms):
            return
        if armed is not None:
            armed[1].cancel()
        delay_s = max(0, end_ms - self._clock()) / 1000
        self._timers[id(queue)] = (end_ms, self._call_later(delay_s, lambda: self._release(queue)))

    def _release(self, queue: DelayQueue[Muted]) -> None:
        self._timers.pop(id(queue), None)
        now_ms = self._clock()
        for item in queue.due(now_ms, AT_ONCE):  # the others at the next turn of the loop: their end has come
            contained("throttle over", item.throttle_over, now_ms, otherwise=item.abort)
        self._arm(queue)

    def _log_first(self, bound: Bound, throttle_ms: int) -> None:
        log.info(
            "first throttle",
            kind=bound.kind.value,
            user=bound.user,
            client_id=bound.client_id,
            broker="all" if bound.broker == CLUSTER else bound.broker,
            rule=bound.rule.describe() if bound.rule else None,
            limit=bound.limit,
            throttle_time_ms=throttle_ms,
            mode=self._mode,
        )


def _ends(throttle: Throttle[Account]) -> int:
    return throttle.at_ms + throttle.throttle_ms
