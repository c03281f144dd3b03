"""The quota controller_mutation_rate: a token bucket per counter, and the decision about each request."""

from collections.abc import Sequence
from math import ceil, inf

from quotas.bound import Bound
from quotas.counted import CounterKey, CounterState
from quotas.rate import Window
from quotas.throttle import INT32_MAX, clamp_ms
from quotas.token_bucket import TokenBucket


class Ruling:
    """Accepts or refuses the topics of one request (StrictControllerMutationQuota and its permissive sibling).

    Several buckets are charged together: the emptiest one refuses, and then none is charged. ``strict``: the client
    understands that topics may be refused.
    """

    __slots__ = ("_buckets", "_strict", "_throttle_ms", "_violated_ms")

    def __init__(self, buckets: "Sequence[TokenBound | TokenBucket]", *, strict: bool) -> None:
        self._buckets = buckets
        self._strict = strict
        self._throttle_ms = 0
        self._violated_ms = 0

    def accepts(self, mutations: float, now_ms: int) -> bool:
        """Charge the mutations of one topic. Returns False if it must be refused; then nothing was charged.

        A strict request is decided by the tokens left before it: one topic may overdraw the bucket without bound, and
        that alone causes no throttle. All other requests are accepted, and overdrawing causes a throttle.
        """
        if self._strict and self._violates(now_ms):
            return False
        for bucket in self._buckets:
            bucket.record(mutations, now_ms)
        if not self._strict:
            self._violates(now_ms)
        return True

    def throttle_ms(self, now_ms: int) -> int:
        """Return the rest of the throttle time that the last violation of this request caused."""
        return max(0, self._throttle_ms - (now_ms - self._violated_ms))

    def _violates(self, now_ms: int) -> bool:
        violates = min([bucket.tokens(now_ms) for bucket in self._buckets], default=0.0) < 0
        if violates:
            self._throttle_ms = max([bucket.throttle_ms(now_ms) for bucket in self._buckets])
            self._violated_ms = now_ms
        return violates


class TokenBound(Bound):
    """A counter with a token bucket. Its rate is measured too: Kafka's sensor has both.

    Its debt is the overdraft of the bucket, which never expires.
    """

    __slots__ = ("_bucket", "_shadow")

    def __init__(self, key: CounterKey, window: Window) -> None:
        self._bucket: TokenBucket | None = None
        self._shadow: TokenBucket | None = None
        super().__init__(key, window, None)

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
        """Whether there is a limit, enforced or in shadow mode."""
        return self._limit is not None or self.shadow_limit is not None

    def shadow(self) -> TokenBucket | None:
        """Return the bucket of the shadow limit; None if there is none."""
        bucket, limit = self._shadow, self.shadow_limit
        if limit is not None and bucket is not None:
            bucket.set_limit(limit)
            return bucket
        self._shadow = None if limit is None else TokenBucket(self._window, limit)
        return self._shadow

    # ---------------------------------------------------------------------------------------- what is recorded

    def count(self, value: float, now_ms: int) -> None:
        """Record usage without taking tokens, for mutations that shadow mode would have refused."""
        super().record(value, now_ms)

    def record(self, value: float, now_ms: int) -> None:
        super().record(value, now_ms)
        if self._bucket is not None:
            self._bucket.record(value, now_ms)

    def charge(self, value: float, now_ms: int) -> int:
        self.record(value, now_ms)
        return self.check(now_ms)

    def check(self, now_ms: int) -> int:
        return self.owed_ms(now_ms)

    def tokens(self, now_ms: int) -> float:
        """Return the tokens left; below zero the quota is violated. Infinite without a limit.

        An overdraft of less than half a millisecond's worth is ignored: a client that waited as told owes that much by
        rounding. At a broker the way to the controller and back takes longer than that, and so hides it.
        """
        if self._bucket is None:
            return inf
        tokens = self._bucket.tokens(now_ms)
        return 0.0 if tokens < 0 and not self._bucket.throttle_ms(now_ms) else tokens

    def throttle_ms(self, now_ms: int) -> int:
        """Return the time until the overdraft is paid off, at most 2^31 - 1."""
        return 0 if self._bucket is None else clamp_ms(self._bucket.throttle_ms(now_ms))

    # ---------------------------------------------------------------------------------------- whose turn it is

    def owe(self, throttle_ms: int, now_ms: int) -> None:  # noqa: ARG002  the interface of Bound
        self.shut = True

    def owed_ms(self, now_ms: int) -> int:
        return self.throttle_ms(now_ms)

    def may_bring_forward(self, now_ms: int, most_ms: int) -> bool:
        return self.throttle_ms(now_ms) <= most_ms

    def bring_forward(self, value: float, now_ms: int) -> None:
        """Do nothing: requests that pass despite a debt already took their tokens."""

    def rejudge(self, now_ms: int) -> None:
        """Do nothing: the bucket has the new limit already, and keeps its tokens."""

    def forgive(self, now_ms: int) -> None:
        """Reduce the debt to a window's worth: mutations beyond that were not refused."""
        if self._bucket is not None:
            beyond = -self._bucket.burst - self._bucket.tokens(now_ms)
            if beyond > 0:
                self._bucket.record(-beyond, now_ms)

    def busy_ms(self, now_ms: int) -> int:
        busy_ms = super().busy_ms(now_ms)
        for bucket, limit in ((self._bucket, self._limit), (self.shadow(), self.shadow_limit)):
            if bucket is not None and limit and bucket.burst < inf:
                missing = bucket.burst - bucket.tokens(now_ms)
                busy_ms = max(busy_ms, ceil(min(missing / limit * 1000, INT32_MAX)))
        return busy_ms

    def usage(self, now_ms: int) -> CounterState | None:
        state = super().usage(now_ms)
        if state is None:
            return None
        rate = max(state.rate, 0.0)  # refunds may be for usage that has already expired
        if self._bucket is None:
            return state._replace(rate=rate)
        return state._replace(rate=rate, tokens=self.tokens(now_ms), burst=self._bucket.burst)
