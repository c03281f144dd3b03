"""What is still to come of a Produce, and what it has been charged for that."""

from typing import TYPE_CHECKING, Final

from proxy.session.body import Body
from proxy.session.in_flight import Entry
from proxy.session.throttling import Alarm
from proxy.usage.accounts import Account
from quotas.engine import Bound
from quotas.kinds import QuotaKind
from quotas.rate import Sample

if TYPE_CHECKING:
    from proxy.session.gates.produce import ProduceGate
    from proxy.session.pair import Pair


DISTRUST_MS: Final = 1000
"""After a request that has not come in time, others under its counter wait for no further one for so long: claims that
are made again and again take a tenth of the time at the most."""


class ProduceBody(Body):
    """The body of a Produce.

    ``marks`` say where all of it has been charged already, for each counter: a claim, until it lapses; from then on, as
    without marks, it is charged as it comes. ``entry`` expects the answer which is to tell the throttle time; None with
    acks=0.
    """

    __slots__ = ("_alarm", "_bounds", "_entry", "_gate", "_marks", "_missing", "_pair")

    def __init__(
        self,
        gate: "ProduceGate",
        pair: "Pair",
        account: Account,
        bounds: tuple[Bound, ...],
        marks: list[tuple[Sample, int]],
        missing: int,
        entry: Entry | None,
    ) -> None:
        super().__init__(account)
        self._gate = gate
        self._pair = pair
        self._bounds = bounds
        self._marks = marks
        self._missing = missing
        self._entry = entry
        self._alarm: Alarm | None = None

    def count(self, size: int) -> None:
        self.account.meter.produce_bytes += size

    def came(self, size: int, now_ms: int, *, finished: bool) -> bool:
        self.count(size)
        self._missing -= size
        gate = self._gate
        for bound in self._bounds:
            gate.go_ahead(bound, size, now_ms)
        throttle_ms = 0 if self._marks else self._charge(size, now_ms)
        if finished:
            self.leave(0)
        if not throttle_ms or not gate.enforces:  # or no longer
            return True
        if finished:
            gate.told(self._entry, self.account, throttle_ms, now_ms)
            return True
        return self._may_go_on(size, now_ms)

    def _may_go_on(self, size: int, now_ms: int) -> bool:
        """Let each counter that it is over owe that; whether all of them let the rest come now."""
        to_ask: list[Bound] = []
        for each in self._bounds:
            bound = each.live
            throttle_ms = bound.check(now_ms)
            if not throttle_ms:
                continue
            if bound.streamer is None and not bound.owed_ms(now_ms):
                bound.streamer = self  # one is let through to its end; what it takes beyond the limit is owed by all
            bound.owe(throttle_ms, now_ms)
            if bound.streamer is not self:
                to_ask.append(bound)
        return not to_ask or self._gate.ask_on(self.account, to_ask, size, now_ms)

    def _charge(self, size: int, now_ms: int) -> int:
        bounds = self.account.bounds(QuotaKind.PRODUCER_BYTE_RATE)
        if bounds != self._bounds:  # other quotas are in force than when it began
            self._yield()
            self._bounds = bounds
        return self.account.charge(QuotaKind.PRODUCER_BYTE_RATE, size, now_ms)

    # ------------------------------------------------------------------------------------------------ its claim

    def lapses_at(self, moment_ms: int) -> None:
        """Let the claim lapse at that moment."""
        self._alarm = self._pair.rules.throttling.wake(self, moment_ms)

    def throttle_over(self, now_ms: int) -> None:
        """Give back what has not come yet (called by the delay queue): others may use it until it comes."""
        self._alarm = None
        self._give_back(self._missing)
        for each in self._bounds:
            bound = each.live
            bound.claims_from_ms = now_ms + DISTRUST_MS
            if bound.line:
                self._pair.rules.throttling.alarm(bound.line, now_ms)

    def abort(self) -> None:
        """End the session: to give it back has failed (called by the delay queue)."""
        self._pair.abort()

    def leave(self, missing: int) -> None:
        if self._alarm is not None:
            self._pair.rules.throttling.unwake(self._alarm)
            self._alarm = None
        self._give_back(missing)
        self._yield()

    def _give_back(self, missing: int) -> None:
        for bound, mark in zip(self._bounds, self._marks, strict=False):  # no marks, nothing to give back
            bound.take_back(missing, mark)
        self._marks = []

    def _yield(self) -> None:
        for each in self._bounds:
            bound = each.live
            if bound.streamer is self:
                bound.streamer = None
