"""Throttle times applied to connections: the mode, ceilings, and delay queues with one timer each."""

from collections.abc import Callable
from typing import Final, Protocol

from proxy.runtime.faults import contained
from proxy.usage.throttle_counts import ThrottleCounts, ThrottleEvents
from quotas.admission_queue import AdmissionQueue
from quotas.delay_queue import DelayQueue, Handle
from quotas.engine import Bound
from quotas.kinds import QuotaKind
from quotas.shares import FRESH_MS

_FIRST: Final = 0
"""A moment before that of all alarms."""
AT_ONCE: Final = 50
"""Clients that go on in one turn of the loop: each reads, or forwards, what has waited with it."""


class Timer(Protocol):
    """A call that may be cancelled (asyncio.TimerHandle)."""

    def cancel(self) -> None: ...


CallLater = Callable[[float, Callable[[], None]], Timer]
"""(delay in s, callback) → its timer. It is the loop's, which the rest of this module does not know."""
Alarm = Handle[tuple[Callable[[int], object], Callable[[], object]]]


class Alarms:
    """Calls to be made, each at its moment and with the time: at most ``at_once`` in one turn of the loop, and with one
    timer for all.
    """

    __slots__ = ("_at_once", "_call_later", "_clock", "_queue", "_timer")

    def __init__(self, call_later: CallLater, clock: Callable[[], int], at_once: int = AT_ONCE) -> None:
        self._call_later = call_later
        self._clock = clock
        self._at_once = at_once
        self._queue: DelayQueue[tuple[Callable[[int], object], Callable[[], object]]] = DelayQueue()
        self._timer: tuple[int, Timer] | None = None

    @property
    def number(self) -> int:
        """The number of calls that are still to come."""
        return len(self._queue)

    def add(self, call: Callable[[int], object], abort: Callable[[], object], moment_ms: int) -> Alarm:
        """Call ``call`` at that moment, and ``abort`` if it fails, unless the alarm is cancelled before."""
        alarm = self._queue.add(moment_ms, (call, abort))
        self._arm()
        return alarm

    def hasten(self, now_ms: int) -> None:
        """Let the moment of all have come: the next ``ring`` makes the first calls."""
        self._queue.hasten(now_ms)

    def ring(self) -> None:
        """Make the calls that are due; beyond ``at_once`` at the next turn of the loop."""
        if self._timer is not None:
            self._timer[1].cancel()
            self._timer = None
        now_ms = self._clock()
        for call, abort in self._queue.due(now_ms, self._at_once):
            contained("alarm", call, now_ms, otherwise=abort)
        self._arm()

    def _arm(self) -> None:
        end_ms, armed = self._queue.next_end(), self._timer
        if end_ms is None or (armed is not None and armed[0] <= end_ms):
            return
        if armed is not None:
            armed[1].cancel()
        self._timer = end_ms, self._call_later(max(0, end_ms - self._clock()) / 1000, self.ring)


class Throttling:
    """Applies what the engine computed: ``enforce`` mutes and holds, ``shadow`` only counts, ``off`` never asks."""

    def __init__(
        self,
        *,
        mode: str,
        window_ms: int,
        max_delay_ms: int | None,
        max_hold_ms: int,
        call_later: CallLater,
        clock: Callable[[], int],
        events: ThrottleEvents | None = None,
    ) -> None:
        self.counts = ThrottleCounts(mode, events)
        """Throttles given, and in shadow those that would have been."""
        self.mode = mode
        self.enforces = mode == "enforce"
        """Whether what is allowed is also applied."""
        self.window_ms = window_ms
        self.max_delay_ms = max_delay_ms
        """The most that any one throttle may delay."""
        self.max_hold_ms = max_hold_ms
        """The most that a Fetch may wait before it is answered with nothing."""
        self._mutes = {kind: Alarms(call_later, clock) for kind in QuotaKind}
        """The ends of mutes."""
        self._alarms = Alarms(call_later, clock)
        """The moments at which counters' queues are looked at again, and at which waits in them end early."""
        self._admission: dict[AdmissionQueue, Alarm] = {}
        """The counters' queues in which somebody waits."""
        self.answered_empty = 0
        """Fetches that were answered with nothing."""
        self.dropped = 0
        """Requests that were dropped at their turn, because their clients had closed."""

    def allow(self, throttle_ms: int, bound: Bound) -> int:
        """Return the most of ``throttle_ms`` that may be applied at once; the rest stays owed."""
        if bound.share < 1:
            throttle_ms = min(throttle_ms, FRESH_MS)
        most_ms = self.most_delay_ms(bound)
        return throttle_ms if most_ms is None else min(throttle_ms, most_ms)

    def most_delay_ms(self, bound: Bound) -> int | None:
        """Return the most that one throttle under ``bound`` may delay: what its rule says, or what goes for all."""
        return self.max_delay_ms if bound.max_delay_ms is None else bound.max_delay_ms

    def set_mode(self, mode: str, now_ms: int) -> None:
        """Be in another mode from now on. Unless it enforces, everybody goes who is muted or waits, some at a time."""
        self.counts.set_mode(mode, now_ms)
        self.mode = mode
        self.enforces = mode == "enforce"
        if not self.enforces:
            self._alarms.hasten(now_ms)
            self.reconsider()
            for mutes in self._mutes.values():
                mutes.hasten(now_ms)
                mutes.ring()

    # ------------------------------------------------------------------------------------------------- mutes

    def mute(self, kind: QuotaKind, over: Callable[[int], object], abort: Callable[[], object], end_ms: int) -> Alarm:
        """Call ``over`` at ``end_ms`` as ``Alarms.add``. Until then a connection counts as muted for ``kind``."""
        return self._mutes[kind].add(over, abort, end_ms)

    def wake(self, call: Callable[[int], object], abort: Callable[[], object], moment_ms: int) -> Alarm:
        """Call ``call`` at that moment, likewise."""
        return self._alarms.add(call, abort, moment_ms)

    def queue_sizes(self) -> dict[QuotaKind, int]:
        """Return how many connections are muted or wait in a counter's queue now, by the quota kind that keeps them."""
        return {kind: mutes.number + self.counts.waiting[kind] for kind, mutes in self._mutes.items()}

    # --------------------------------------------------------------------------------------------- admission

    def alarm(self, queue: AdmissionQueue, moment_ms: int) -> None:
        """Let ``queue`` look again at that moment, or earlier."""
        armed = self._admission.get(queue)
        if armed is not None:
            if armed.waiting and armed.end_ms <= moment_ms:
                return
            armed.cancel()
        self._admission[queue] = self.wake(queue.throttle_over, queue.abort, moment_ms)

    def reconsider(self) -> None:
        """Let everybody who waits ask again, some at a time: other limits are in force."""
        for queue in list(self._admission):
            contained("line", self._dissolve, queue)
        self._alarms.ring()

    def _dissolve(self, queue: AdmissionQueue) -> None:
        for place in queue.dissolve():
            self.wake(place.throttle_over, place.abort, _FIRST)

    def tidy(self, now_ms: int) -> None:
        """Forget the queues in which nobody waits, in shadow count what would have happened until now, and log which
        throttles have started and ended. To be called once a second.
        """
        self._admission = {queue: alarm for queue, alarm in self._admission.items() if queue or alarm.waiting}
        self.counts.settle(now_ms)
        self.counts.look(now_ms)
