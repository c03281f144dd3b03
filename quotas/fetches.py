"""The sharing of one counter by fetches: when each may go, and how much it may ask for.

How it works:

- A Fetch is charged by its response, which cannot be taken back. So its max_bytes is lowered before it is sent, to its
  portion of what the quota has left: an equal part for each active connection that has nothing in flight. A broker
  discards the excess instead.
- While it is in flight, its expected size is reserved, and others share the rest. The expected size is max_bytes if the
  last response on this connection was as long as allowed, and the size of that response otherwise. A consumer that has
  caught up and waits at the broker for records reserves nothing, however much it asks for.
- A response larger than expected is charged like any other. If the counter is in debt by then, it waits.
- Others wait for a response in vain a tenth of the time at most: after one that did not come, nothing is reserved for
  DISTRUST_MS. That bound is one for all connections and names together (docs/decisions/0049).
- While fetches wait, at most SAVED_S seconds' worth of the limit are left: they go at an even pace, although Kafka's
  window gives a burst back at once.
- If most bytes come in long responses, the next Fetch goes when there is no debt, for a portion of GATHER_S seconds'
  worth. If not, fetches wait until so much is left, and go together: otherwise each would go as soon as a portion is
  left, and bring the record or two that have arrived since. A single connection does not wait like this: its responses
  may be short because of its own limit per partition.
- A broker sends at least one whole batch, and truncates the last one, which clients discard. So a lowered Fetch asks
  for a multiple of the batch size, or for one byte to get just one batch. The batch size is learned from such
  responses.
"""

from math import inf
from typing import TYPE_CHECKING, Final

from quotas.rate import AT_ONCE

if TYPE_CHECKING:
    from quotas.bound import Bound

RESERVED_MS: Final = 250
"""How long a response is expected. A Fetch that takes longer waits for records, and reserves nothing."""
DISTRUST_MS: Final = 2500
"""How long nothing is reserved after a response that did not come: to wait for it takes a tenth of the time at most."""
SAVED_S: Final = 1.0
"""Seconds' worth of the limit at most that are left once fetches wait: from then on they go at an even pace."""
GATHER_S: Final = 0.9
"""Seconds' worth that fetches share then. Less than SAVED_S, which rounding may miss."""
EMPTY_BYTES: Final = 512
"""Responses up to this size count as empty."""

_LEAST_SHARERS: Final = 8
"""The least number of portions."""
_WORTH_PARTS: Final = 32
"""A response of 1/32 of ``_enough`` always counts as long: a client may limit the size per partition."""
_ACTIVE_MS: Final = 10_000
"""How long a connection counts as active after its last Fetch: longer than a turn takes to come."""
_FIRST_BYTES: Final = 1 << 20
"""The expected size before the first response: one batch, and a broker accepts batches of 1 MiB."""
_PROBE_EACH: Final = 16
"""Every 16th lowered Fetch asks for a single batch, to measure the batch size again."""


class Fetcher:
    """One connection that fetches under a counter: its expected response and its fetches in flight."""

    __slots__ = ("batch", "expected", "fetches", "max_bytes", "reserved", "since_ms")

    def __init__(self) -> None:
        self.batch = 0
        """The size of the last response with a single batch; 0 before there was one."""
        self.expected: float | None = None
        """Expected bytes of its next response; infinite: as long as allowed; None before its first response."""
        self.max_bytes = 0
        """max_bytes of its last Fetch. If several are in flight, none of them was lowered."""
        self.fetches = 0
        self.reserved = 0.0
        self.since_ms = 0


class Fetches:
    """The connections that fetch under one counter."""

    __slots__ = (
        "_active",
        "_average",
        "_batch",
        "_believed_from_ms",
        "_bound",
        "_fetchers",
        "_gathers",
        "_is_new",
        "_lowered",
        "_reserved",
        "_under_way",
        "_was_cut",
        "_worth_part",
    )

    def __init__(self, bound: "Bound") -> None:
        self._bound = bound
        self._fetchers: dict[object, Fetcher] = {}
        self._under_way: dict[object, Fetcher] = {}
        """The connections with a reservation, the oldest first."""
        self._active: dict[object, int] = {}
        """The time of the last Fetch of each active connection, the oldest first."""
        self._reserved = 0.0
        self._average = float(_FIRST_BYTES)
        """The average size of recent responses, including empty ones."""
        self._is_new = True
        """No response has been seen yet."""
        self._believed_from_ms = AT_ONCE
        self._batch = 0
        """The size of the last single batch on any connection; 0 before there was one."""
        self._lowered = 0
        self._was_cut = False
        """A response was as long as allowed: its last batch may be truncated."""
        self._worth_part = 1.0
        """The part of recent bytes that came in long responses: as long as allowed, or at least half a portion."""
        self._gathers = False
        """Fetches wait until enough is left, because less than a portion was."""

    def __bool__(self) -> bool:
        """Whether anything is reserved."""
        return bool(self._under_way)

    def join(self, who: object) -> None:
        """Add a connection."""
        self._fetchers[who] = Fetcher()

    def leave(self, who: object) -> None:
        """Remove a connection. If it leaves without a response, none is expected of others that do the same."""
        if fetcher := self._under_way.get(who):
            self._distrust(who, fetcher)
        self._active.pop(who, None)
        self._fetchers.pop(who, None)

    # ---------------------------------------------------------------------------------------------- before it goes

    def may_go(self, now_ms: int) -> int:
        """Return ``now_ms`` if a Fetch may go, else when to ask again. To be called while the counter has no debt."""
        self._lapse(now_ms)
        bound = self._bound
        left = bound.left(now_ms)
        portion = self._portion(len(self._active))
        if self._gathers or (left < portion and self._worth_part < 0.5 and len(self._active) > 1):
            moment_ms = bound.when_left(self._enough, now_ms)
            self._gathers = moment_ms > now_ms
            if self._gathers:
                return moment_ms
        if not self._under_way or left - self._reserved >= max(portion, self._average):
            return now_ms
        return next(iter(self._under_way.values())).since_ms + RESERVED_MS

    def grant_whole(self, who: object, asked_bytes: int, now_ms: int) -> bool:
        """Send a Fetch unchanged if all sharers could ask for as much: most quotas are far from their limit.

        Fast path with the same result as ``may_go`` and ``grant``. Returns False if the slow path must decide.
        """
        if not self.fits_whole(asked_bytes, now_ms):
            return False
        fetcher = self._fetchers[who]
        fetcher.max_bytes = max(asked_bytes, fetcher.max_bytes) if fetcher.fetches else asked_bytes
        fetcher.fetches += 1
        self._reserve(who, fetcher, min(self._expected(fetcher, now_ms), max(asked_bytes, self._average)), now_ms)
        return True

    def fits_whole(self, asked_bytes: int, now_ms: int) -> bool:
        """Whether all sharers could ask for ``asked_bytes``."""
        each = max(asked_bytes, self._average)
        return self._bound.fits(self._reserved + each * len(self._fetchers), now_ms)

    def grant(self, who: object, asked_bytes: int, now_ms: int) -> int:
        """Reserve the expected size of a Fetch and return the max_bytes to send it with."""
        self.forget(who)  # a stale reservation, for example if the limit was removed meanwhile
        fetcher = self._fetchers[who]
        sharers = self._sharers(who, fetcher, now_ms)
        portion = max(
            (self._bound.left(now_ms) - self._reserved) / sharers, self._portion(max(sharers, len(self._active)))
        )
        portion = min(portion, self._at_once)
        max_bytes = (
            asked_bytes if asked_bytes <= portion else self._whole_batches(self._batch_of(fetcher), int(portion))
        )
        fetcher.max_bytes = max_bytes
        fetcher.fetches = 1
        self._reserve(
            who,
            fetcher,
            min(self._expected(fetcher, now_ms), max(max_bytes, self._batch_of(fetcher) or self._average)),
            now_ms,
        )
        return max_bytes

    def _sharers(self, who: object, fetcher: Fetcher, now_ms: int) -> int:
        """Return the number of connections that share what is left.

        An active connection shares with the other active ones that have nothing in flight.
        An inactive one gets its part of all, in case all of them become active at once.
        """
        active = self._active
        if self._expected(fetcher, now_ms) > EMPTY_BYTES:
            active.pop(who, None)  # and in again, as the newest
            active[who] = now_ms
        while active and next(iter(active.values())) < now_ms - _ACTIVE_MS:
            del active[next(iter(active))]
        if who not in active:
            return len(self._fetchers)
        sharers = len(self._fetchers) if fetcher.expected is None else len(active)
        return max(sharers - len(self._under_way), 1)

    def _whole_batches(self, batch: int, portion: int) -> int:
        """Return a max_bytes that brings only whole batches."""
        self._lowered += 1
        if self._was_cut and (not batch or self._lowered % _PROBE_EACH == 0):
            return 1
        if not batch:
            return max(portion, 1)
        return portion // batch * batch if portion >= 2 * batch else 1

    def _batch_of(self, fetcher: Fetcher) -> int:
        """Return its batch size; if not known, that of another connection, or 0."""
        return fetcher.batch or self._batch

    def _reserve(self, who: object, fetcher: Fetcher, expected: float, now_ms: int) -> None:
        if expected <= EMPTY_BYTES or now_ms < self._believed_from_ms:
            return
        self._under_way.pop(who, None)  # and in again, as the newest
        self._under_way[who] = fetcher
        fetcher.reserved += expected
        fetcher.since_ms = now_ms
        self._reserved += expected

    # ------------------------------------------------------------------------------------------------- its answer

    def covers(self, who: object, size: int) -> bool:
        """Whether a response of this size is within the reservation."""
        fetcher = self._fetchers.get(who)
        return fetcher is not None and size <= fetcher.reserved + EMPTY_BYTES

    def turns_beyond(self, size: int) -> float:
        """Return how many turns, in units of a portion, a response took beyond its own."""
        return max(size / self._portion(len(self._active)) - 1, 0.0) if self._enough else 0.0

    def answered(self, who: object, size: int) -> None:
        """Update the expectations from a response that is being charged, and release its reservation."""
        fetcher = self._fetchers.get(who)
        if fetcher is None:
            return
        is_full = size >= max(fetcher.max_bytes, self._batch_of(fetcher)) / 2
        if fetcher.max_bytes == 1 or size > 1.5 * fetcher.max_bytes > 0:
            self._batch = fetcher.batch = max(size, EMPTY_BYTES)
        elif size > fetcher.max_bytes > 0:
            self._was_cut = True
        self._learn(size)
        is_worth = is_full or size >= self._enough / max(2 * len(self._active), _WORTH_PARTS)
        self._worth_part += (is_worth - self._worth_part) * size / (size + self._enough)
        fetcher.expected = inf if is_full else size
        if fetcher.expected <= EMPTY_BYTES:
            self._active.pop(who, None)
        if fetcher.fetches <= 1:
            self.forget(who)
            return
        part = fetcher.reserved / fetcher.fetches
        fetcher.reserved -= part
        fetcher.fetches -= 1
        self._reserved -= part

    def forget(self, who: object) -> None:
        """Release the reservation of a connection."""
        fetcher = self._fetchers.get(who)
        if fetcher is not None:
            fetcher.fetches = 0
            if self._under_way.pop(who, None) is not None:
                self._reserved = self._reserved - fetcher.reserved if self._under_way else 0.0
                fetcher.reserved = 0.0

    def _lapse(self, now_ms: int) -> None:
        """Release reservations whose response is overdue."""
        while self._under_way:
            who, fetcher = next(iter(self._under_way.items()))
            if now_ms < fetcher.since_ms + RESERVED_MS:
                return
            self._distrust(who, fetcher)
            fetcher.expected = 0
            self._active.pop(who, None)

    def _distrust(self, who: object, fetcher: Fetcher) -> None:
        """Release a reservation whose response has not come, and reserve nothing for a while."""
        self._believed_from_ms = fetcher.since_ms + RESERVED_MS + DISTRUST_MS
        self._learn(0)
        self.forget(who)

    # -------------------------------------------------------------------------------------------------- amounts

    def _learn(self, size: int) -> None:
        self._average = size if self._is_new else self._average + (size - self._average) / 4
        self._is_new = False

    def _expected(self, fetcher: Fetcher, now_ms: int) -> float:
        """Return the expected size of a response; for a new connection, a guess from the responses of others."""
        if fetcher.expected is not None:
            return fetcher.expected
        return inf if self._average > EMPTY_BYTES and now_ms >= self._believed_from_ms else 0.0

    @property
    def _at_once(self) -> float:
        """The largest max_bytes of one Fetch, as a broker lowers it (KAFKA-9677)."""
        return self._bound.window.allowance(self._bound.limit or 0.0)

    @property
    def _enough(self) -> float:
        """Bytes that fetches share once the quota is used up."""
        return min((self._bound.limit or 0.0) * GATHER_S, self._at_once / 2)

    def _portion(self, sharers: int) -> float:
        """Return the smallest portion that is worth a Fetch."""
        return self._enough / max(sharers, _LEAST_SHARERS)
