"""Claims on one counter: what requests are to use of it before they have come, or before they may go.

- A Produce is charged by its header: it *claims* bytes that are still to come, and others wait for them. What has not
  come within COMING_MS is given back, and charged as it comes. Such a claim costs others a tenth of the time at most,
  because for DISTRUST_MS after it the counter believes no other.
- A Produce larger than what is left *streams*: it is charged as it comes, and goes on to its end although the counter
  is in debt by then. There is one such request at a time; others wait for the debt.
- A request that waits at another counter has a *promise* that it may pass when it returns, whatever the debt is then
  (docs/decisions/0022).

What a Fetch in flight is expected to bring is reserved in ``fetches``.
"""

from typing import TYPE_CHECKING, Final

from quotas.admission_queue import NO_NUMBER
from quotas.rate import AT_ONCE, Sample

if TYPE_CHECKING:
    from quotas.bound import Bound

COMING_MS: Final = 100
"""How long others wait for a request to come, by what it announces; then only what has come of it counts."""
DISTRUST_MS: Final = 1000


class Claims:
    """The claims on one counter."""

    __slots__ = ("_believed_from_ms", "_bound", "promised", "streamer")

    def __init__(self, bound: "Bound") -> None:
        self._bound = bound
        self._believed_from_ms = AT_ONCE
        self.promised = NO_NUMBER
        """The number of the request that has the promise."""
        self.streamer: Claim | None = None

    def believes(self, now_ms: int) -> bool:
        """Whether others wait for an announced request."""
        return now_ms >= self._believed_from_ms

    def distrust(self, now_ms: int) -> None:
        """Believe no claim for a while: one was not kept."""
        self._believed_from_ms = now_ms + DISTRUST_MS

    def promise(self, number: int, value: float) -> None:
        """Promise a request that waits at another counter that it may pass on its return.

        Others do not wait for it: its charge, ``value``, is reserved, so that all together stay within the limit. The
        oldest request, by its number, has the promise.
        """
        if not NO_NUMBER < self.promised < number:
            self.promised = number
            self._bound.reserve(value)

    def end_promise(self, number: int) -> bool:
        """Withdraw the promise: the request was sent, or will not come. Returns whether it had it still."""
        if self.promised != number:
            return False
        self.promised = NO_NUMBER
        self._bound.reserve(0.0)
        return True


class Claim:
    """The claim of one request, on each of its counters, on what is still to come of it.

    ``is_believed``: others wait for it. ``is_charged``: all of it is charged already, until it lapses; otherwise it is
    charged as it comes.
    """

    __slots__ = ("_marks", "_missing", "bounds", "is_believed")

    def __init__(self, bounds: "tuple[Bound, ...]", missing: int, now_ms: int, *, over: bool) -> None:
        """Claim ``missing``, which has been charged. ``over``: that was more than a counter had left."""
        self.bounds = bounds
        self._missing = missing
        self.is_believed = all(bound.claims.believes(now_ms) for bound in bounds)
        self._marks: list[tuple[Sample, int]] = [bound.mark for bound in bounds]
        if self.is_believed and over:
            for bound in bounds:
                if over_ms := bound.check(now_ms):
                    bound.owe(min(over_ms, COMING_MS), now_ms)
                    self._stream(bound)
        if over or not self.is_believed:
            self._give_back()

    @property
    def is_charged(self) -> bool:
        return bool(self._marks)

    def came(self, size: int) -> None:
        self._missing -= size

    def move(self, bounds: "tuple[Bound, ...]") -> None:
        """Be charged to these counters from now on."""
        if bounds != self.bounds:
            self._end_stream()
            self.bounds = bounds

    def in_the_way(self, now_ms: int) -> "tuple[Bound, ...]":
        """Let each counter owe what is over its limit. Returns those that do not let the rest come now."""
        found: list[Bound] = []
        for bound in self.bounds:
            if throttle_ms := bound.check(now_ms):
                if not bound.owed_ms(now_ms):
                    self._stream(bound)
                bound.owe(throttle_ms, now_ms)
                if bound.claims.streamer is not self:
                    found.append(bound)
        return tuple(found)

    def lapse(self, now_ms: int) -> None:
        """Give back what has not come yet: others may use it until it comes."""
        self._give_back()
        for bound in self.bounds:
            if bound.limit is not None:
                bound.claims.distrust(now_ms)

    def end(self) -> None:
        """Give back what will not come: it has come to its end, or its connection has."""
        self._give_back()
        self._end_stream()

    def _give_back(self) -> None:
        for bound, mark in zip(self.bounds, self._marks, strict=False):  # no marks, nothing to give back
            bound.take_back(self._missing, mark)
        self._marks = []

    def _stream(self, bound: "Bound") -> None:
        if bound.claims.streamer is None:
            bound.claims.streamer = self

    def _end_stream(self) -> None:
        for bound in self.bounds:
            if bound.claims.streamer is self:
                bound.claims.streamer = None
