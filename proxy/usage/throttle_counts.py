"""Counts throttles: those given, and those that a limit which throttles nobody would have given.

Such limits are all while the mode is ``shadow``, and in any mode those of rules in shadow. A simulation of the counter
(``quotas.simulated_counter``) tells what they would have done.
"""

from collections import Counter
from typing import Final

import structlog

from proxy.usage.accounts import Account
from proxy.usage.lately import LAST_MINUTE_MS
from quotas.counted import CLUSTER, CounterKey
from quotas.engine import Bound
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.simulated_counter import SimulatedCounter

log = structlog.get_logger("sluice.throttle")

MOST_COUNTERS: Final = 1000
"""Counters that are followed at once."""


class _Record:
    """A counter that is throttled."""

    __slots__ = ("begun_ms", "bound", "is_logged", "throttle_ms", "until_ms")

    def __init__(self, bound: Bound, now_ms: int) -> None:
        self.bound = bound
        self.begun_ms = self.until_ms = now_ms
        self.throttle_ms = 0
        self.is_logged = False
        """Its start is logged."""


class ThrottleEvents:
    """Logs when each of up to ``most`` counters starts and ends being throttled (``log.throttles``): an end is when the
    last minute had none.

    A throttle only adds to a record; what is logged is decided once a second. The log itself limits the rate of each
    event, and says how many lines it left out.
    """

    def __init__(self, most: int = MOST_COUNTERS) -> None:
        self._most = most
        self._records: dict[CounterKey, _Record] = {}
        self._left_out = 0

    def remember(self, bound: Bound, throttle_ms: int, now_ms: int, until_ms: int) -> None:
        """Remember a throttle that ends at ``until_ms``, or a request that begins or ends to wait."""
        record = self._records.get(bound.key)
        if record is None:
            if len(self._records) >= self._most:
                self._left_out += 1
                return
            record = self._records[bound.key] = _Record(bound, now_ms)
        record.throttle_ms += throttle_ms
        record.until_ms = max(record.until_ms, until_ms)

    def log_changes(self, now_ms: int, mode: str) -> None:
        """Log what has started and ended since the last call; to be called once a second."""
        for key, record in list(self._records.items()):
            if not record.is_logged:
                record.is_logged = True
                log.info("throttle started", **_fields(record.bound), mode=mode)
            if record.bound.queue:
                record.until_ms = max(record.until_ms, now_ms)
            elif now_ms - record.until_ms >= LAST_MINUTE_MS:
                del self._records[key]
                log.info(
                    "throttle ended",
                    **_fields(record.bound),
                    mode=mode,
                    duration_ms=record.until_ms - record.begun_ms,
                    throttle_time_ms=record.throttle_ms,
                )
        if self._left_out:
            log.info("throttles not followed: too many counters at once", number=self._left_out, most=self._most)
            self._left_out = 0


class ThrottleCounts:
    """Counts the throttles of all clients, in their counters and meters, and as log events if there are ``events``."""

    __slots__ = ("_events", "_mode", "_simulated", "waiting")

    def __init__(self, mode: str, events: ThrottleEvents | None = None) -> None:
        self._mode = mode
        self._events = events
        self.waiting: Counter[QuotaKind] = Counter()
        """Requests and answers that wait in counters' queues now."""
        self._simulated: dict[tuple[Bound, bool], SimulatedCounter[Account]] = {}
        """By counter and whether its limit is one in shadow; else it is in force, and the mode is ``shadow``."""

    def set_mode(self, mode: str, now_ms: int) -> None:
        """Count in another mode from now on; demand that still waits in simulations is dropped."""
        self.settle(now_ms)
        self._mode = mode
        for key in list(self._simulated):
            self._end(key)

    def given(self, account: Account, bound: Bound, throttle_ms: int, now_ms: int, at_ms: int | None = None) -> None:
        """Count a throttle of ``account`` that begins now, or began at ``at_ms``."""
        if bound.throttled_total == 0:
            log.info("first throttle", **_fields(bound), throttle_time_ms=throttle_ms, mode=self._mode)
        bound.count_throttle(throttle_ms)
        if self._events is not None:
            self._events.remember(bound, throttle_ms, now_ms, (now_ms if at_ms is None else at_ms) + throttle_ms)
        cap = bound.rule if bound.is_cap else None
        account.live_meter.count_throttle(bound.kind, throttle_ms, now_ms, at_ms, cap)

    def wait(
        self, account: Account, bound: Bound, cap: Entity | None, change: int, now_ms: int, waited_ms: int = 0
    ) -> None:
        """Count one more that waits in a counter's queue, or one fewer, which has waited ``waited_ms``. ``cap``: the
        rule of the counter, if that is a cap.
        """
        self.waiting[bound.kind] += change
        if waited_ms:
            bound.count_throttle(waited_ms)  # the client is not told of it
        if self._events is not None:
            self._events.remember(bound, waited_ms, now_ms, now_ms)
        account.meter.count_wait(bound.kind, change, now_ms, waited_ms, cap)

    def look(self, now_ms: int) -> None:
        """Log which throttles have started and ended."""
        if self._events is not None:
            self._events.log_changes(now_ms, self._mode)

    def simulate(self, account: Account, kind: QuotaKind, size: float, now_ms: int, connection: int = 0) -> None:
        """Count what would have become of ``size`` charged to ``account``, in units of ``kind`` times s."""
        if self._mode == "enforce" and not account.has_shadow(kind):
            return
        for bound in account.bounds(kind):
            for is_shadow, limit in ((False, bound.limit), (True, bound.shadow_limit)):
                if limit is not None and (is_shadow or self._mode == "shadow"):
                    simulated = self._under(bound, is_shadow, limit)
                    simulated.arrive(size, account, now_ms, connection)
                    self._settle(bound, is_shadow, simulated, now_ms)

    def simulated(self, since_ms: int) -> list[tuple[Bound, bool, int, int]]:
        """Return the counters that would have held clients since ``since_ms``: each, whether it is for its limit in
        shadow, until when, and how many requests would wait.
        """
        found = []
        for (bound, is_shadow), simulated in self._simulated.items():
            if simulated.waiting or simulated.until_ms > since_ms:
                found.append((bound, is_shadow, simulated.until_ms, simulated.waiting))
        return found

    def settle(self, now_ms: int) -> None:
        """Count what would have happened until now."""
        for (bound, is_shadow), simulated in list(self._simulated.items()):
            self._settle(bound, is_shadow, simulated, now_ms)
            if simulated.over(now_ms) or (is_shadow and bound.shadow_limit is None):
                self._end((bound, is_shadow))

    def _end(self, key: tuple[Bound, bool]) -> None:
        del self._simulated[key]
        key[0].let_go()

    def _under(self, bound: Bound, is_shadow: bool, limit: float) -> SimulatedCounter[Account]:
        """Return the simulation of a counter under ``limit``, and its window."""
        simulated = self._simulated.get((bound, is_shadow))
        if simulated is None:
            bound.hold()
        if simulated is None or simulated.window != bound.window:
            cap_ms = bound.window.size_ms if bound.kind.row.capped else None
            simulated = self._simulated[bound, is_shadow] = SimulatedCounter(bound.window, limit, cap_ms)
        simulated.limit(limit)
        return simulated

    def _settle(self, bound: Bound, is_shadow: bool, simulated: SimulatedCounter[Account], now_ms: int) -> None:
        throttles = simulated.settle(now_ms) + simulated.take_waited()
        for account, throttle_ms, at_ms in sorted(throttles, key=lambda each: each.at_ms + each.throttle_ms):
            if is_shadow:
                bound.count_shadow(throttle_ms)
                account.live_meter.count_shadow(bound.kind, throttle_ms, now_ms, at_ms)
            else:
                self.given(account, bound, throttle_ms, now_ms, at_ms)


def _fields(bound: Bound) -> dict[str, object]:
    """Return the fields of a log event about a counter."""
    return {
        "kind": bound.kind.value,
        "user": bound.key.user,
        "client_id": bound.key.client_id,
        "broker": "all" if bound.key.broker == CLUSTER else bound.key.broker,
        "rule": bound.rule.describe() if bound.rule else None,
        "limit": bound.limit,
    }
