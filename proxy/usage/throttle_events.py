"""Log events when counters start and end being throttled (``log.throttles``): an end is when the last minute had none.

A throttle only adds to a record; what is logged is decided once a second. The log itself limits the rate of each
event, and says how many lines it left out.
"""

from typing import Final

import structlog

from proxy.usage.lately import LAST_MINUTE_MS
from quotas.counted import CLUSTER, CounterKey
from quotas.engine import Bound

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
    """Follows up to ``most`` counters, and logs ``throttle started`` and ``throttle ended`` for each."""

    def __init__(self, most: int = MOST_COUNTERS) -> None:
        self._most = most
        self._records: dict[CounterKey, _Record] = {}
        self._left_out = 0

    def note(self, bound: Bound, throttle_ms: int, now_ms: int, until_ms: int) -> None:
        """Record a throttle of ``throttle_ms`` that ends at ``until_ms``, or a request that begins or ends to wait."""
        record = self._records.get(bound.key)
        if record is None:
            if len(self._records) >= self._most:
                self._left_out += 1
                return
            record = self._records[bound.key] = _Record(bound, now_ms)
        record.throttle_ms += throttle_ms
        record.until_ms = max(record.until_ms, until_ms)

    def look(self, now_ms: int, mode: str) -> None:
        """Log what has started and ended since the last call; to be called once a second."""
        for key, record in list(self._records.items()):
            if not record.is_logged:
                record.is_logged = True
                log.info("throttle started", **fields(record.bound), mode=mode)
            if record.bound.queue:
                record.until_ms = max(record.until_ms, now_ms)
            elif now_ms - record.until_ms >= LAST_MINUTE_MS:
                del self._records[key]
                log.info(
                    "throttle ended",
                    **fields(record.bound),
                    mode=mode,
                    duration_ms=record.until_ms - record.begun_ms,
                    throttle_time_ms=record.throttle_ms,
                )
        if self._left_out:
            log.info("throttles not followed: too many counters at once", number=self._left_out, most=self._most)
            self._left_out = 0


def fields(bound: Bound) -> dict[str, object]:
    """Return the fields of a log event about a counter."""
    return {
        "kind": bound.kind.value,
        "user": bound.user,
        "client_id": bound.client_id,
        "broker": "all" if bound.broker == CLUSTER else bound.broker,
        "rule": bound.rule.describe() if bound.rule else None,
        "limit": bound.limit,
    }
