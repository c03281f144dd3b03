"""Which addresses connected: what usage records say of connections before anybody knows whose they are.

Strangers choose their addresses, an IPv6 host from 2^64. So few are told apart: first those with a limit of their own
name, then those that were refused, then those that came most. All others of a listener are summed up in one row.
"""

from collections.abc import Iterator
from heapq import nlargest
from typing import Final, NamedTuple

from proxy.usage.throttles import Throttles
from quotas.connections import OTHERS
from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind

MOST_COUNTED: Final = 5000
"""Addresses without a limit of their own name that are counted apart within an interval: a megabyte, and to choose the
busiest of them takes some milliseconds."""
_SLICE: Final = 200
"""Addresses looked at before others get their turn."""
_OF_KIND: Final = QuotaKind.CONNECTION_CREATION_RATE.row.columns
COLUMNS: Final = (
    *(_OF_KIND.used, _OF_KIND.limit, _OF_KIND.rule, _OF_KIND.throttled, _OF_KIND.throttle_ms, _OF_KIND.muted_ms),
    *("accept_waits", "accept_wait_ms"),
)
"""Of an address: what came, the limit, its rule, and of what came how much was refused, and how long it was held. Of a
listener: how often accepting waited."""
NOTHING: Final = (0, None, None, 0, 0, 0, 0, 0)


class AddressRow(NamedTuple):
    """What came from one address to one listener within an interval, or from all that are not told apart; or the waits
    of a listener, without an address.
    """

    listener: str
    ip: str | None
    exempt: bool
    figures: tuple[object, ...]
    """In the order of COLUMNS."""


class _Key(NamedTuple):
    listener: str
    ip: str
    exempt: bool


class _Address:
    """What came from one address."""

    __slots__ = ("attempts", "limit", "rule", "throttles")

    def __init__(self) -> None:
        self.attempts = 0
        self.limit: float | None = None
        """At the last attempt."""
        self.rule: Entity | None = None
        self.throttles: Throttles | None = None

    @property
    def rank(self) -> tuple[bool, int, int]:
        named = self.rule is not None and self.rule.ip is not Default.DEFAULT
        return named, 0 if self.throttles is None else self.throttles.throttled, self.attempts


class Addresses:
    """Counts attempts; of each interval ``most`` addresses have a row, and the others one for each listener."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._addresses: dict[_Key, _Address] = {}
        self._waits: dict[str, list[int]] = {}

    def note_wait(self, listener: str, wait_ms: int) -> None:
        """Count a wait of accepting, for the rate of a listener or of the proxy."""
        waits = self._waits.setdefault(listener, [0, 0])
        waits[0] += 1
        waits[1] += wait_ms

    def note(
        self,
        listener: str,
        ip: str,
        now_ms: int,
        limit: float | None = None,
        rule: Entity | None = None,
        *,
        throttle_ms: int = 0,
        exempt: bool = False,
    ) -> None:
        """Count an attempt to connect; ``throttle_ms`` above 0: it is refused, and held for so long."""
        key = _Key(listener, ip, exempt)
        address = self._addresses.get(key)
        if address is None:
            named = rule is not None and rule.ip is not Default.DEFAULT
            if len(self._addresses) >= MOST_COUNTED and not named:
                key = key._replace(ip=OTHERS)
                limit = rule = None
            address = self._addresses.setdefault(key, _Address())
        address.attempts += 1
        address.limit, address.rule = limit, None if limit is None else rule
        if throttle_ms > 0:
            if address.throttles is None:
                address.throttles = Throttles()
            address.throttles.note(throttle_ms, now_ms)

    def take(self, now_ms: int) -> Iterator[AddressRow | None]:
        """Yield what was counted since this was called last, and count from zero again; None: let others have a turn.

        What is noted while this runs belongs to the next interval.
        """
        taken, self._addresses = self._addresses, {}
        chosen = dict(nlargest(self._most, taken.items(), key=lambda each: each[1].rank))
        rest: dict[_Key, list[int]] = {}
        for number, (key, address) in enumerate(taken.items()):
            if number % _SLICE == _SLICE - 1:
                yield None
            figures = (0, 0, 0)
            if address.throttles is not None:
                figures = address.throttles.take(now_ms)
                if not address.throttles.over(now_ms):
                    self._hold_on(key, address)
            if key in chosen and key.ip != OTHERS:
                rule = None if address.rule is None else address.rule.describe()
                yield AddressRow(*key, (address.attempts, address.limit, rule, *figures, 0, 0))
            else:
                sums = rest.setdefault(key._replace(ip=OTHERS), [0] * 4)
                for index, figure in enumerate((address.attempts, *figures)):
                    sums[index] += figure
        for key, (attempts, *sums) in rest.items():
            yield AddressRow(*key, (attempts, None, None, *sums, 0, 0))
        waits, self._waits = self._waits, {}
        for listener, sums in waits.items():
            yield AddressRow(listener, None, False, (*NOTHING[:-2], *sums))

    def _hold_on(self, key: _Key, address: _Address) -> None:
        """Keep what holds connections of an address into the next interval, which counts the rest of its mute."""
        later = self._addresses.setdefault(key, _Address())
        if later.throttles is None:
            later.throttles, later.limit, later.rule = address.throttles, address.limit, address.rule
