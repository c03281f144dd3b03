"""Counts connections by address, for usage records: before the client of a connection is known.

Strangers choose their addresses, an IPv6 host from 2^64 of them, so few have rows of their own: first addresses with a
limit of their own, then refused ones, then the busiest. The others of a listener share one row.
"""

from collections.abc import Iterator
from heapq import nlargest
from operator import add
from typing import Final, NamedTuple

from proxy.usage.kind_usage import Throttles
from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from quotas.names import FOLDED

MOST_COUNTED: Final = 5000
"""Addresses counted separately within an interval, besides those with a limit of their own: a megabyte of memory, and
some milliseconds to select the busiest."""
_SLICE: Final = 200
"""Addresses processed before other tasks get a turn."""
_OF_KIND: Final = QuotaKind.CONNECTION_CREATION_RATE.row.columns
COLUMNS: Final = (
    *(_OF_KIND.used, _OF_KIND.limit, _OF_KIND.rule, _OF_KIND.throttled, _OF_KIND.throttle_ms, _OF_KIND.muted_ms),
    *("accept_waits", "accept_wait_ms"),
)
"""Columns of an address: connections, the limit, its rule, refused connections and how long they were held. Columns of
a listener: number and duration of accept waits."""
NOTHING: Final = (0, None, None, 0, 0, 0, 0, 0)


class AddressKey(NamedTuple):
    """The connections that one row counts: of one address to one broker through one listener."""

    listener: str
    ip: str | None
    """None: the accept waits of a listener. FOLDED: all the others."""
    broker: int = -1
    """Node id; -1: not known when the connection was accepted, and for all the others together."""
    exempt: bool = False


class _Address:
    """Counters of one address."""

    __slots__ = ("attempts", "limit", "rule", "throttles")

    def __init__(self) -> None:
        self.attempts = 0
        self.limit: float | None = None
        """As of the last attempt."""
        self.rule: Entity | None = None
        self.throttles = Throttles()

    @property
    def rank(self) -> tuple[bool, int, int]:
        return _is_named(self.rule), self.throttles.throttled, self.attempts


class Addresses:
    """Counts attempts to connect; in each interval ``most`` addresses have their own row, the
    others one per listener.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._addresses: dict[AddressKey, _Address] = {}
        self._waits: dict[str, list[int]] = {}

    def count_wait(self, listener: str, wait_ms: int) -> None:
        """Count an accept wait, for the rate of the listener or of the proxy."""
        waits = self._waits.setdefault(listener, [0, 0])
        waits[0] += 1
        waits[1] += wait_ms

    def count(
        self,
        listener: str,
        ip: str,
        broker: int | None,
        now_ms: int,
        limit: float | None = None,
        rule: Entity | None = None,
        *,
        throttle_ms: int = 0,
        exempt: bool = False,
        attempts: int = 1,
    ) -> None:
        """Count an attempt to connect. With ``throttle_ms`` above 0 it is refused and held for that time. ``attempts``
        0: it has been counted, and is refused after all.
        """
        key = AddressKey(listener, ip, -1 if broker is None else broker, exempt)
        address = self._addresses.get(key)
        if address is None:
            if len(self._addresses) >= MOST_COUNTED and not _is_named(rule):
                key = AddressKey(listener, FOLDED, exempt=exempt)
                limit = rule = None
            address = self._addresses.setdefault(key, _Address())
        address.attempts += attempts
        address.limit, address.rule = limit, None if limit is None else rule
        if throttle_ms > 0:
            address.throttles.count(throttle_ms, now_ms)

    def take(self, now_ms: int) -> Iterator[tuple[AddressKey, tuple[object, ...]] | None]:
        """Yield rows and their figures (COLUMNS) since the last call, and reset the counters; None: let other tasks
        have a turn.

        Attempts during the iteration count for the next interval.
        """
        taken, self._addresses = self._addresses, {}
        chosen = dict(nlargest(self._most, taken.items(), key=lambda each: each[1].rank))
        rest: dict[AddressKey, list[int]] = {}
        for number, (key, address) in enumerate(taken.items(), 1):
            if number % _SLICE == 0:
                yield None
            figures = address.throttles.take(now_ms)
            if address.throttles.active:
                self._hold_on(key, address)
            if key in chosen and key.ip != FOLDED:
                rule = None if address.rule is None else address.rule.describe()
                yield key, (address.attempts, address.limit, rule, *figures, 0, 0)
            else:
                folded = AddressKey(key.listener, FOLDED, exempt=key.exempt)
                sums = rest.get(folded, [0, 0, 0, 0])
                rest[folded] = [*map(add, sums, (address.attempts, *figures))]
        for key, (attempts, *sums) in rest.items():
            yield key, (attempts, None, None, *sums, 0, 0)
        waits, self._waits = self._waits, {}
        for listener, sums in waits.items():
            yield AddressKey(listener, None), (*NOTHING[:-2], *sums)

    def _hold_on(self, key: AddressKey, address: _Address) -> None:
        """Carry a mute that is not over into the next interval, which counts the rest of it."""
        later = self._addresses.setdefault(key, _Address())
        if not later.throttles.active:
            later.throttles, later.limit, later.rule = address.throttles, address.limit, address.rule


def _is_named(rule: Entity | None) -> bool:
    """Whether an address has a limit of its own."""
    return rule is not None and rule.ip is not Default.DEFAULT
