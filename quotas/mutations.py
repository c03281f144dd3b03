"""What controller_mutation_rate allows: a token bucket for each counter, and the rule that a request is judged by."""

from collections.abc import Sequence
from math import ceil, inf
from typing import TYPE_CHECKING, Protocol

from quotas.bound import Bound
from quotas.counted import CounterKey, CounterState
from quotas.rate import Window
from quotas.throttle import INT32_MAX, clamp_ms
from quotas.token_bucket import TokenBucket

if TYPE_CHECKING:
    from quotas.counters import Counters


class Tokens(Protocol):
    """What a request takes its mutations from: a bucket."""

    def record(self, value: float, now_ms: int) -> None: ...
    def tokens(self, now_ms: int) -> float: ...
    def throttle_ms(self, now_ms: int) -> int: ...


class Buckets:
    """Several that a request takes from alike: it is refused by the emptiest, and then takes from none."""

    __slots__ = ("_all",)

    def __init__(self, buckets: Sequence[Tokens]) -> None:
        self._all = buckets

    def record(self, value: float, now_ms: int) -> None:
        """Take ``value`` from each."""
        for bucket in self._all:
            bucket.record(value, now_ms)

    def tokens(self, now_ms: int) -> float:
        """Return what the emptiest has left; infinite where there is none."""
        return min([bucket.tokens(now_ms) for bucket in self._all], default=inf)

    def throttle_ms(self, now_ms: int) -> int:
        """Return how long it takes until all are made good."""
        return max([bucket.throttle_ms(now_ms) for bucket in self._all], default=0)


class Ruling:
    """Judges the topics of one request (StrictControllerMutationQuota and its permissive sibling).

    ``strict``: its clients know that topics may be refused. ``bucket`` None: no limit.
    """

    __slots__ = ("_bucket", "_strict", "_throttle_ms", "_violated_ms")

    def __init__(self, bucket: Tokens | None, *, strict: bool) -> None:
        self._bucket = bucket
        self._strict = strict
        self._throttle_ms = 0
        self._violated_ms = 0

    def accepts(self, mutations: float, now_ms: int) -> bool:
        """Charge the mutations of one topic. False: it is to be refused, and nothing was charged.

        A strict request is judged by what the bucket holds before: one topic may overdraw it without bound, and that
        alone asks for no throttle. Of others all are accepted, and what they overdraw asks for one.
        """
        bucket = self._bucket
        if bucket is None:
            return True
        if self._strict:
            if self._violates(bucket, now_ms):
                return False
            bucket.record(mutations, now_ms)
            return True
        bucket.record(mutations, now_ms)
        self._violates(bucket, now_ms)
        return True

    def throttle_ms(self, now_ms: int) -> int:
        """Return what is left of the throttle time that the last violation of this request asked for."""
        return max(0, self._throttle_ms - (now_ms - self._violated_ms))

    def _violates(self, bucket: Tokens, now_ms: int) -> bool:
        violates = bucket.tokens(now_ms) < 0
        if violates:
            self._throttle_ms = bucket.throttle_ms(now_ms)
            self._violated_ms = now_ms
        return violates


class TokenBound(Bound):
    """A counter that is a token bucket. As a rate it is measured too, for all to see: Kafka's sensor has both.

    It owes what the bucket is overdrawn by, and nothing else: that forgets nothing. To be asked on the live bound.
    """

    __slots__ = ("_bucket", "_shadow")

    def __init__(self, key: CounterKey, window: Window, counters: "Counters") -> None:
        self._bucket: TokenBucket | None = None
        self._shadow: TokenBucket | None = None
        super().__init__(key, window, None, counters)

    def set_limit(self, limit: float | None) -> None:
        super().set_limit(limit)
        bucket = self._bucket
        if limit is not None and bucket is not None:
            bucket.set_limit(limit)
        else:
            self._bucket = None if limit is None else TokenBucket(self._window, limit)

    def set_window(self, window: Window) -> None:
        super().set_window(window)
        for bucket in (self._bucket, self._shadow):
            if bucket is not None:
                bucket.set_window(window)

    @property
    def concerns(self) -> bool:
        """Whether there is a limit, in force or in shadow."""
        return self._limit is not None or self.shadow_limit is not None

    def shadow(self) -> TokenBucket | None:
        """Return the bucket of the limit that is measured and holds nobody; None where there is none."""
        bucket, limit = self._shadow, self.shadow_limit
        if limit is not None and bucket is not None:
            bucket.set_limit(limit)
            return bucket
        self._shadow = None if limit is None else TokenBucket(self._window, limit)
        return self._shadow

    # ---------------------------------------------------------------------------------------- what is recorded

    def count(self, value: float, now_ms: int) -> None:
        """Record what is used without taking tokens for it: in shadow, what would have been refused."""
        live = self.live
        if live is self or not isinstance(live, TokenBound):
            super().record(value, now_ms)
        else:
            live.count(value, now_ms)

    def record(self, value: float, now_ms: int) -> None:
        live = self.live
        if live is not self:
            live.record(value, now_ms)
            return
        super().record(value, now_ms)
        if self._bucket is not None:
            self._bucket.record(value, now_ms)

    def charge(self, value: float, now_ms: int) -> int:
        self.record(value, now_ms)
        return self.check(now_ms)

    def check(self, now_ms: int) -> int:
        live = self.live
        return live.owed_ms(now_ms) if live is not self else self.owed_ms(now_ms)

    def tokens(self, now_ms: int) -> float:
        """Return what is left; below zero the quota is violated. Infinite without a limit.

        Less than half a millisecond's worth is no overdraft: whoever has waited as told owes that much by rounding. At
        a broker the way to the controller and back takes longer than that, and so hides it.
        """
        if self._bucket is None:
            return inf
        tokens = self._bucket.tokens(now_ms)
        return 0.0 if tokens < 0 and not self._bucket.throttle_ms(now_ms) else tokens

    def throttle_ms(self, now_ms: int) -> int:
        """Return how long it takes to make good what is overdrawn, at most 2^31 - 1."""
        return 0 if self._bucket is None else clamp_ms(self._bucket.throttle_ms(now_ms))

    # ---------------------------------------------------------------------------------------- whose turn it is

    def owe(self, throttle_ms: int, now_ms: int) -> None:  # noqa: ARG002  the face of Bound
        self.shut = True

    def owed_ms(self, now_ms: int) -> int:
        return self.throttle_ms(now_ms)

    def may_bring_forward(self, now_ms: int, most_ms: int) -> bool:
        return self.throttle_ms(now_ms) <= most_ms

    def bring_forward(self, value: float, now_ms: int) -> None:
        """Nothing more: what goes within a debt has been taken from the bucket."""

    def rejudge(self, now_ms: int) -> None:
        """Nothing: the bucket has the other limit already, and keeps its tokens."""

    def forgive(self, now_ms: int) -> None:
        """Owe no more than a window's worth: nobody was refused what went beyond it."""
        if self._bucket is not None and self._limit is not None:
            beyond = -self._burst(self._limit) - self._bucket.tokens(now_ms)
            if beyond > 0:
                self._bucket.record(-beyond, now_ms)

    def busy_ms(self, now_ms: int) -> int:
        busy_ms = super().busy_ms(now_ms)
        for bucket, limit in ((self._bucket, self._limit), (self.shadow(), self.shadow_limit)):
            if bucket is not None and limit and (burst := self._burst(limit)) < inf:
                missing = burst - bucket.tokens(now_ms)
                busy_ms = max(busy_ms, ceil(min(missing / limit * 1000, INT32_MAX)))
        return busy_ms

    def _burst(self, limit: float) -> float:
        return self._window.keep_ms / 1000 * limit

    def usage(self, now_ms: int) -> CounterState | None:
        state = super().usage(now_ms)
        if state is None:
            return None
        rate = max(state.rate, 0.0)  # what was given back may be older than what is still in the window
        if self._limit is None:
            return state._replace(rate=rate)
        return state._replace(rate=rate, tokens=self.tokens(now_ms), burst=self._burst(self._limit))
