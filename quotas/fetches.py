"""When a Fetch goes that shares a counter with others, and how much it may ask for.

How it works:

- A Fetch is charged by its answer, which cannot be taken back. So its max_bytes is lowered before it goes, to its share
  of what the quota has left: as much for each connection that fetches something and has nothing under way. A broker
  throws away what is too much instead.
- While it is under way, what it is likely to bring is set aside, and others share the rest. That is all it may bring if
  the last answer on this connection was as long as allowed, and as much as that answer brought otherwise. A consumer
  that has caught up and waits at the broker for records sets nothing aside, however much it asks for.
- An answer that brings more than expected is charged like any other. If the counter is in debt by then, it waits.
- Where answers are long, the next Fetch goes when there is no debt, for a share of two seconds' worth. Where they are
  shorter than half of that, fetches wait until two seconds' worth are left, and go together: otherwise each would go as
  soon as a share is left, and bring the record or two that have come since. One connection alone does not wait so: it
  may be its own limit for a partition that keeps answers short, and to wait would lose a tenth of the quota or more.
- A broker sends at least one whole batch, and cuts off the last one, which clients throw away. So a lowered Fetch asks
  for a multiple of the size of a batch, or for one byte to get just one. That size is learned from such answers.
"""

from math import inf
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from quotas.bound import Bound

SET_ASIDE_MS: Final = 250
"""How long an answer is expected. A Fetch without one by then waits for records, and sets nothing aside."""
GATHER_S: Final = 2.0
"""Fetches share so many seconds' worth when the quota is used up."""
EMPTY_BYTES: Final = 512
"""An answer of no more is taken for one without records."""

_LEAST_SHARERS: Final = 8
"""For fewer sharers a share is this part of it: answers of quarter seconds."""
_WORTH_PARTS: Final = 32
"""An answer is long at this part of it in any case: a client may limit what each partition brings."""
_ACTIVE_MS: Final = 10_000
"""How long a connection counts as one that fetches after its last Fetch: longer than one waits for its turn."""
_FIRST_BYTES: Final = 1 << 20
"""Expected before there was an answer: one batch, and a broker accepts batches of 1 MiB."""
_PROBE_EACH: Final = 16
"""One in so many lowered fetches asks for a single batch, to see how large batches are now."""


class Fetcher:
    """One connection that fetches under a counter: what is expected of it, and what it has under way."""

    __slots__ = ("batch", "expected", "fetches", "max_bytes", "set_aside", "since_ms")

    def __init__(self) -> None:
        self.batch = 0
        """The size of its last batch that came alone, including what surrounds it; 0 before there was one."""
        self.expected: float | None = None
        """Bytes that its next Fetch is likely to bring; infinite: all that it may. ``None`` before its first answer."""
        self.max_bytes = 0
        """max_bytes of its last Fetch. If several are under way, none of them was lowered."""
        self.fetches = 0
        self.set_aside = 0.0
        self.since_ms = 0


class Fetches:
    """The connections that fetch under one counter."""

    __slots__ = (
        "_active",
        "_batch",
        "_bound",
        "_fetchers",
        "_gathers",
        "_is_new",
        "_lowered",
        "_set_aside",
        "_under_way",
        "_usual",
        "_was_cut",
        "_worth_part",
    )

    def __init__(self, bound: "Bound") -> None:
        self._bound = bound
        self._fetchers: dict[object, Fetcher] = {}
        self._under_way: dict[object, Fetcher] = {}
        """Those that have something set aside, the oldest first."""
        self._active: dict[object, int] = {}
        """When each of those that bring something last sent a Fetch, the oldest first."""
        self._set_aside = 0.0
        self._usual = float(_FIRST_BYTES)
        """The average of recent answers, including empty ones."""
        self._is_new = True
        """No answer was seen yet."""
        self._batch = 0
        """The size of the last batch that came alone, on any connection; 0 before there was one."""
        self._lowered = 0
        self._was_cut = False
        """An answer was as long as allowed: its last batch may be incomplete."""
        self._worth_part = 1.0
        """The part of recent answers that were worth going for: as long as allowed, or at least half a share."""
        self._gathers = False
        """Less than a share was left, and fetches wait until enough is."""

    @property
    def sharers(self) -> int:
        """Connections that fetch under this counter."""
        return len(self._fetchers)

    def __bool__(self) -> bool:
        """Something is set aside."""
        return bool(self._under_way)

    def join(self, who: object) -> None:
        """Add a connection."""
        self._fetchers[who] = Fetcher()

    def leave(self, who: object) -> None:
        """Remove a connection. If it leaves without an answer, none is expected of others that do the same."""
        if who in self._under_way:
            self._learn(0)
            self.forget(who)
        self._active.pop(who, None)
        self._fetchers.pop(who, None)

    # ---------------------------------------------------------------------------------------------- before it goes

    def may_go(self, now_ms: int) -> int:
        """Return ``now_ms`` if a Fetch may go, else when to ask again. To be called while the counter has no debt."""
        self._lapse(now_ms)
        bound = self._bound
        left = bound.left(now_ms)
        share = self._share(len(self._active))
        if self._gathers or (left < share and self._worth_part < 0.5 and len(self._active) > 1):
            moment_ms = bound.when_left(self._enough, now_ms)
            self._gathers = moment_ms > now_ms
            if self._gathers:
                return moment_ms
        if not self._under_way or left - self._set_aside >= max(share, self._usual):
            return now_ms
        return next(iter(self._under_way.values())).since_ms + SET_ASIDE_MS

    def grant_whole(self, who: object, asked_bytes: int, now_ms: int) -> bool:
        """Let a Fetch go unchanged if all sharers could ask for as much: most quotas are far from their limit.

        The result is that of ``may_go`` and ``grant``, at a small part of the cost. Returns False where those decide.
        """
        if not self.fits_whole(asked_bytes, now_ms):
            return False
        fetcher = self._fetchers[who]
        fetcher.max_bytes = max(asked_bytes, fetcher.max_bytes) if fetcher.fetches else asked_bytes
        fetcher.fetches += 1
        self._put_aside(who, fetcher, min(self._expected(fetcher), max(asked_bytes, self._usual)), now_ms)
        return True

    def fits_whole(self, asked_bytes: int, now_ms: int) -> bool:
        """Whether all sharers could ask for so much."""
        each = max(asked_bytes, self._usual)
        return self._bound.fits(self._set_aside + each * len(self._fetchers), now_ms)

    def grant(self, who: object, asked_bytes: int, now_ms: int) -> int:
        """Let a Fetch go, and return the max_bytes that it goes with."""
        self.forget(who)  # what is left of an earlier one, for example if the limit was removed meanwhile
        fetcher = self._fetchers[who]
        sharers = self._sharers(who, fetcher, now_ms)
        share = max(
            (self._bound.left(now_ms) - self._set_aside) / sharers, self._share(max(sharers, len(self._active)))
        )
        share = min(share, self._at_once)
        max_bytes = asked_bytes if asked_bytes <= share else self._whole_batches(self._batch_of(fetcher), int(share))
        fetcher.max_bytes = max_bytes
        fetcher.fetches = 1
        self._put_aside(
            who, fetcher, min(self._expected(fetcher), max(max_bytes, self._batch_of(fetcher) or self._usual)), now_ms
        )
        return max_bytes

    def _sharers(self, who: object, fetcher: Fetcher, now_ms: int) -> int:
        """Return by how many to divide what is left.

        A connection that brings something shares with the others that do and have nothing under way, those that wait
        included. One that brings nothing gets its part of all, in case that all of them wake up at once.
        """
        active = self._active
        if self._expected(fetcher) > EMPTY_BYTES:
            active.pop(who, None)  # and in again, as the newest
            active[who] = now_ms
        while active and next(iter(active.values())) < now_ms - _ACTIVE_MS:
            del active[next(iter(active))]
        if who not in active:
            return len(self._fetchers)
        sharers = len(self._fetchers) if fetcher.expected is None else len(active)
        return max(sharers - len(self._under_way), 1 + len(self._bound.line or ()))

    def _whole_batches(self, batch: int, share: int) -> int:
        """Return what to ask for so that only whole batches come."""
        self._lowered += 1
        if self._was_cut and (not batch or self._lowered % _PROBE_EACH == 0):
            return 1
        if not batch:
            return max(share, 1)
        return share // batch * batch if share >= 2 * batch else 1

    def _batch_of(self, fetcher: Fetcher) -> int:
        """Return the size of its batches; before that is known, of another connection's, or 0."""
        return fetcher.batch or self._batch

    def _put_aside(self, who: object, fetcher: Fetcher, expected: float, now_ms: int) -> None:
        if expected <= EMPTY_BYTES:
            return
        self._under_way.pop(who, None)  # and in again, as the newest
        self._under_way[who] = fetcher
        fetcher.set_aside += expected
        fetcher.since_ms = now_ms
        self._set_aside += expected

    # ------------------------------------------------------------------------------------------------- its answer

    def covers(self, who: object, size: int) -> bool:
        """Whether an answer of that size was expected, and still is."""
        fetcher = self._fetchers.get(who)
        return fetcher is not None and size <= fetcher.set_aside + EMPTY_BYTES

    def turns_beyond(self, size: int) -> float:
        """Return how many turns more than its own an answer has taken, by what a turn is to bring."""
        return max(size / self._share(len(self._active)) - 1, 0.0) if self._enough else 0.0

    def answered(self, who: object, size: int) -> None:
        """Learn from an answer that is being charged, and release what was set aside for it."""
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
        self._worth_part += (is_worth - self._worth_part) / 4
        fetcher.expected = inf if is_full else size
        if fetcher.expected <= EMPTY_BYTES:
            self._active.pop(who, None)
        if fetcher.fetches <= 1:
            self.forget(who)
            return
        part = fetcher.set_aside / fetcher.fetches
        fetcher.set_aside -= part
        fetcher.fetches -= 1
        self._set_aside -= part

    def forget(self, who: object) -> None:
        """Set nothing aside for a connection any more."""
        fetcher = self._fetchers.get(who)
        if fetcher is not None:
            fetcher.fetches = 0
            if self._under_way.pop(who, None) is not None:
                self._set_aside = self._set_aside - fetcher.set_aside if self._under_way else 0.0
                fetcher.set_aside = 0.0

    def _lapse(self, now_ms: int) -> None:
        """Expect no answer any more from those that have had none for a while."""
        while self._under_way:
            who, fetcher = next(iter(self._under_way.items()))
            if now_ms < fetcher.since_ms + SET_ASIDE_MS:
                return
            self._learn(0)
            self.forget(who)
            fetcher.expected = 0
            self._active.pop(who, None)

    # -------------------------------------------------------------------------------------------------- amounts

    def _learn(self, size: int) -> None:
        self._usual = size if self._is_new else self._usual + (size - self._usual) / 4
        self._is_new = False

    def _expected(self, fetcher: Fetcher) -> float:
        """Return what a Fetch is likely to bring if it may; of a new connection, what others bring is a guess."""
        if fetcher.expected is not None:
            return fetcher.expected
        return inf if self._usual > EMPTY_BYTES else 0.0

    @property
    def _at_once(self) -> float:
        """The most that one Fetch may bring: a broker lowers max_bytes to that (KAFKA-9677)."""
        return self._bound.window.allowance(self._bound.limit or 0.0)

    @property
    def _enough(self) -> float:
        """Bytes that fetches share when the quota is used up."""
        return min((self._bound.limit or 0.0) * GATHER_S, self._at_once / 2)

    def _share(self, sharers: int) -> float:
        """Return the least that is worth going for."""
        return self._enough / max(sharers, _LEAST_SHARERS)
