"""The rule of a Produce: charged on the request's header where the quota has that much left, else as it comes.

A claim is not a use. The part of a request that has not come within COMING_MS is given back, and charged when it comes:
a Produce that announces much costs those who share its quota what came of it.
"""

from typing import Final

from proxy.session.context import SessionContext, Waiting
from proxy.session.exchange import ACKS_0, Body, Decision, Exchange, Forward, Park, Request
from proxy.session.flow import IN_LINE, TURN
from proxy.session.serving import Served
from proxy.session.throttling import Alarm
from proxy.usage.accounts import Account
from quotas.engine import Bound
from quotas.kinds import QuotaKind
from quotas.rate import Sample

KIND: Final = QuotaKind.PRODUCER_BYTE_RATE

_MAX_UNANSWERED = 1024

COMING_MS: Final = 100
"""How long others wait for a request to come, by what it announces; then only what has come of it counts. A claim that
nothing follows keeps them no longer."""
DISTRUST_MS: Final = 1000
"""After a request that has not come in time, others under its counter wait for no further one for so long: claims that
are made again and again take a tenth of the time at the most."""


class ProduceBody(Body):
    """The body of a Produce.

    ``marks`` say where all of it has been charged already, for each counter: a claim, until it lapses; from then on, as
    without marks, it is charged as it comes. The answer of ``exchange`` tells the throttle time; None with acks=0.
    """

    __slots__ = ("_alarm", "_bounds", "_exchange", "_marks", "_missing", "_session")

    def __init__(
        self,
        session: SessionContext,
        account: Account,
        bounds: tuple[Bound, ...],
        marks: list[tuple[Sample, int]],
        missing: int,
        exchange: Exchange | None,
    ) -> None:
        super().__init__(account)
        self._session = session
        self._bounds = bounds
        self._marks = marks
        self._missing = missing
        self._exchange = exchange
        self._alarm: Alarm | None = None

    def count(self, size: int) -> None:
        self.account.meter.produce_bytes += size

    def came(self, size: int, now_ms: int, *, finished: bool) -> bool:
        self.count(size)
        self._missing -= size
        session = self._session
        _go_ahead(session, self._bounds, size, now_ms)
        throttle_ms = 0 if self._marks else self._charge(size, now_ms)
        if finished:
            self.leave()
        if not throttle_ms or not session.worker.throttling.enforces:  # or no longer
            return True
        if not finished:
            return self._may_go_on(size, now_ms)
        told_ms = session.throttle(self.account, KIND, throttle_ms, now_ms)
        if self._exchange is not None:
            self._exchange.tell(told_ms, now_ms)
        return True

    def _may_go_on(self, size: int, now_ms: int) -> bool:
        """Let each counter that it is over owe that; whether all of them let the rest come now."""
        to_ask: list[Bound] = []
        for bound in self._bounds:
            throttle_ms = bound.check(now_ms)
            if not throttle_ms:
                continue
            if bound.streamer is None and not bound.owed_ms(now_ms):
                bound.streamer = self  # one is let through to its end; what it takes beyond the limit is owed by all
            bound.owe(throttle_ms, now_ms)
            if bound.streamer is not self:
                to_ask.append(bound)
        return not to_ask or self._session.ticket.ask(Waiting.BODY, self.account, tuple(to_ask), size, now_ms)

    def _charge(self, size: int, now_ms: int) -> int:
        bounds = self.account.bounds(KIND)
        if bounds != self._bounds:  # other quotas are in force than when it began
            self._yield()
            self._bounds = bounds
        return self.account.charge(KIND, size, now_ms)

    # ------------------------------------------------------------------------------------------------ its claim

    def lapses_at(self, moment_ms: int) -> None:
        self._alarm = self._session.worker.throttling.wake(self._lapse, self._session.abort, moment_ms)

    def _lapse(self, now_ms: int) -> None:
        """Give back what has not come yet: others may use it until it comes."""
        self._alarm = None
        self._give_back()
        for bound in self._bounds:
            bound.claims_from_ms = now_ms + DISTRUST_MS
            if bound.queue:
                self._session.worker.throttling.alarm(bound.queue, now_ms)

    def leave(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._give_back()
        self._yield()

    def _give_back(self) -> None:
        for bound, mark in zip(self._bounds, self._marks, strict=False):  # no marks, nothing to give back
            bound.take_back(self._missing, mark)
        self._marks = []

    def _yield(self) -> None:
        for bound in self._bounds:
            if bound.streamer is self:
                bound.streamer = None


def _go_ahead(session: SessionContext, bounds: tuple[Bound, ...], came: int, now_ms: int) -> None:
    """Let counters owe what came within their debt because a re-authentication comes behind it."""
    if now_ms >= session.sasl.deadline_ms:
        for bound in bounds:
            bound.bring_forward(came, now_ms)


class ProducePolicy:
    __slots__ = ("_session", "_unanswered", "prefix")

    def __init__(self, session: SessionContext) -> None:
        self._session = session
        self.prefix = session.identity.produce_prefix
        self._unanswered = 0
        """Requests with acks=0, whose number no answers bound: a chunk has room for 10,000."""

    def before(self, request: Request, now_ms: int) -> Decision:
        """Charge a request and forward it, or park it in its counter's queue.

        Raises ProtocolError if the request ends inside what has to be read of it.
        """
        field = self.prefix.find(request)
        if field is None:
            return request.need_more()
        throttling, account = self._session.worker.throttling, self._session.identity.account
        size, missing = request.size, request.missing
        bounds = account.bounds(KIND)
        came = size - missing
        if throttling.enforces and account.is_shut(KIND):
            # It costs others what has come of it, and its own client's turns what it announces.
            if not self._session.ticket.ask(Waiting.REQUEST, account, bounds, came, now_ms, size):
                return Park(IN_LINE)
            _go_ahead(self._session, bounds, came, now_ms)
        throttle_ms = account.charge(KIND, size, now_ms)
        throttling.counts.simulate(account, KIND, size, now_ms, id(self))
        if not throttling.enforces:
            throttle_ms = 0
        request.api.requests += 1
        account.meter.produce_requests += 1
        account.meter.produce_bytes += size
        acks_0 = request.chunk.startswith(ACKS_0, field)
        return self.charged(request.api, request.correlation_id, throttle_ms, acks_0, missing, now_ms)

    def charged(
        self, api: Served, correlation_id: int, throttle_ms: int, acks_0: bool, missing: int, now_ms: int
    ) -> Forward:
        """Mute for the throttle that a charge has asked for, and forward the request; its answer tells the throttle."""
        account = self._session.identity.account
        told_ms = 0
        if throttle_ms and missing <= 0:
            told_ms = self._session.throttle(account, KIND, throttle_ms, now_ms)
        # With acks=0 no answer comes: the mute is all there is.
        exchange = None if acks_0 else Exchange(correlation_id, api, account, now_ms, told_ms)
        forward = Forward(exchange, stop=self._count_unanswered() if acks_0 else 0)
        if missing > 0:
            forward.body = self._expect_rest(exchange, missing, throttle_ms > 0, now_ms)
        return forward

    def _expect_rest(self, exchange: Exchange | None, missing: int, over: bool, now_ms: int) -> ProduceBody:
        """Return the rest of a request, all of which has been charged.

        It stays charged, as a claim, unless that is more than its quota has left (``over``), or others do not wait
        for claims now: then it is charged as it comes.
        """
        account = self._session.identity.account
        bounds = account.bounds(KIND)
        others_wait = all(bound.claims_from_ms <= now_ms for bound in bounds)
        claimed = others_wait and not over
        marks = [bound.mark for bound in bounds] if claimed else []
        body = ProduceBody(self._session, account, bounds, marks, missing, exchange)
        body.count(-missing)
        if others_wait and account.limited(KIND):
            body.lapses_at(now_ms + COMING_MS)
        for bound in bounds:
            if not claimed:
                if others_wait and (over_ms := bound.check(now_ms)):
                    bound.owe(min(over_ms, COMING_MS), now_ms)
                    if bound.streamer is None:
                        bound.streamer = body
                bound.take_back(missing, bound.mark)
        return body

    def _count_unanswered(self) -> int:
        """Return the reasons to stop behind a request without an answer: after many, other sessions have a turn."""
        self._unanswered += 1
        if self._unanswered < _MAX_UNANSWERED:
            return 0
        self._unanswered = 0
        return TURN
