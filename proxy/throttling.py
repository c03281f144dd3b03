"""From a throttle time to a muted connection: mode, ceilings, and one delay queue with one timer per quota kind."""

from collections.abc import Callable
from typing import Final, Protocol

import structlog

from proxy.faults import contained
from quotas.delay_queue import DelayQueue, Handle
from quotas.engine import Bound
from quotas.kinds import QuotaKind

log = structlog.get_logger("sluice.throttle")

NO_DEADLINE: Final = 2**62
"""Of a connection that need not re-authenticate; in ms, and later than any clock."""


class Muted(Protocol):
    """What waits in a delay queue: a session that is not read from until its throttle time is over."""

    def throttle_over(self, now_ms: int) -> None:
        """Read again, unless another reason forbids it."""
        ...

    def abort(self) -> None:
        """End: to be read again has failed."""
        ...


class Timer(Protocol):
    """A call that may be cancelled (asyncio.TimerHandle)."""

    def cancel(self) -> None: ...


class Throttling:
    """Applies what the engine computed: ``enforce`` mutes, ``shadow`` only counts, ``off`` never asks.

    ``call_later(delay_s, callback)`` and ``clock`` are the loop's; nothing else here knows that there is one.
    """

    def __init__(
        self,
        *,
        mode: str,
        window_ms: int,
        max_delay_ms: int | None,
        call_later: Callable[[float, Callable[[], None]], Timer],
        clock: Callable[[], int],
    ) -> None:
        self._mode = mode
        self._window_ms = window_ms
        self._max_delay_ms = max_delay_ms
        self._call_later = call_later
        self._clock = clock
        self._queues: dict[QuotaKind, DelayQueue[Muted]] = {kind: DelayQueue() for kind in QuotaKind}
        self._timers: dict[QuotaKind, tuple[int, Timer]] = {}

    @property
    def enforces(self) -> bool:
        """Whether what is allowed is also applied."""
        return self._mode == "enforce"

    def allow(self, throttle_ms: int, *, one_window: bool) -> int:
        """Return the most of ``throttle_ms`` that may be applied.

        ``one_window``: the connection carries group or transaction traffic, which times out if it is held long.
        """
        if self._max_delay_ms is not None and throttle_ms > self._max_delay_ms:
            throttle_ms = self._max_delay_ms
        return min(throttle_ms, self._window_ms) if one_window else throttle_ms

    def note(self, bound: Bound, throttle_ms: int) -> None:
        """Count a throttle given, or in shadow one that would have been, under ``bound``."""
        if bound.throttled_total == 0:
            self._log_first(bound, throttle_ms)
        bound.note_throttle(throttle_ms)

    def mute(self, kind: QuotaKind, session: Muted, end_ms: int) -> Handle[Muted]:
        """Call ``session.throttle_over`` at ``end_ms``; the handle is for ``unmute``."""
        queue = self._queues[kind]
        handle = queue.add(end_ms, session)
        self._arm(kind, queue)
        return handle

    def unmute(self, kind: QuotaKind, handle: Handle[Muted]) -> None:
        """Forget a mute before its time: the connection is gone, or muted for longer."""
        self._queues[kind].discard(handle)

    def queue_sizes(self) -> dict[QuotaKind, int]:
        """Return how many connections are muted now, by the quota kind that muted them."""
        return {kind: len(queue) for kind, queue in self._queues.items()}

    def _arm(self, kind: QuotaKind, queue: DelayQueue[Muted]) -> None:
        end_ms = queue.next_end()
        armed = self._timers.get(kind)
        if end_ms is None or (armed is not None and armed[0] <= end_ms):
            return
        if armed is not None:
            armed[1].cancel()
        delay_s = max(0, end_ms - self._clock()) / 1000
        self._timers[kind] = (end_ms, self._call_later(delay_s, lambda: self._release(kind)))

    def _release(self, kind: QuotaKind) -> None:
        self._timers.pop(kind, None)
        queue = self._queues[kind]
        now_ms = self._clock()
        for session in queue.due(now_ms):
            contained("throttle over", session.throttle_over, now_ms, otherwise=session.abort)
        self._arm(kind, queue)

    def _log_first(self, bound: Bound, throttle_ms: int) -> None:
        log.info(
            "first throttle",
            kind=bound.kind.value,
            user=bound.user,
            client_id=bound.client_id,
            broker=bound.broker,
            rule=bound.rule.describe() if bound.rule else None,
            limit=bound.limit,
            throttle_time_ms=throttle_ms,
            mode=self._mode,
        )
