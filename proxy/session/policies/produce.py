"""The rule of a Produce: charged on the request's header where the quota has that much left, else as it comes.

A claim is not a use (``quotas.claims``): a Produce that announces much costs those who share its quota what came of it.
"""

from typing import TYPE_CHECKING, Final

from proxy.session.admission import Waiting
from proxy.session.exchange import ACKS_0, Body, Decision, Exchange, Forward, Park, Request
from proxy.session.flow import IN_LINE, TURN
from proxy.session.serving import Served
from proxy.session.throttling import Alarm
from proxy.usage.accounts import Account
from quotas.claims import COMING_MS, Claim
from quotas.engine import Bound
from quotas.kinds import QuotaKind

if TYPE_CHECKING:
    from proxy.session.session import Session

KIND: Final = QuotaKind.PRODUCER_BYTE_RATE

_MAX_UNANSWERED = 1024


class ProduceBody(Body):
    """The body of a Produce. The answer of ``exchange`` tells the throttle time; None with acks=0."""

    __slots__ = ("_alarm", "_claim", "_exchange", "_session")

    def __init__(self, session: "Session", account: Account, claim: Claim, exchange: Exchange | None) -> None:
        super().__init__(account)
        self._session = session
        self._claim = claim
        self._exchange = exchange
        self._alarm: Alarm | None = None
        """When the claim lapses."""

    def count(self, size: int) -> None:
        self.account.meter.produce_bytes += size

    def came(self, size: int, now_ms: int, *, finished: bool) -> bool:
        self.count(size)
        session, claim = self._session, self._claim
        claim.came(size)
        _go_ahead(session, claim.bounds, size, now_ms)
        throttle_ms = 0
        if not claim.is_charged:
            claim.move(self.account.bounds(KIND))  # other quotas may be in force than when it began
            throttle_ms = self.account.charge(KIND, size, now_ms)
        if finished:
            self.leave()
        if not throttle_ms or not session.worker.throttling.enforces:  # or no longer
            return True
        if not finished:
            to_ask = claim.in_the_way(now_ms)
            return not to_ask or session.ticket.ask(Waiting.BODY, self.account, to_ask, size, now_ms)
        told_ms = session.throttle(self.account, KIND, throttle_ms, now_ms)
        if self._exchange is not None:
            self._exchange.tell(told_ms, now_ms)
        return True

    def lapses_at(self, moment_ms: int) -> None:
        self._alarm = self._session.worker.throttling.wake(self._lapse, self._session.abort, moment_ms)

    def _lapse(self, now_ms: int) -> None:
        self._alarm = None
        self._claim.lapse(now_ms)
        for bound in self._claim.bounds:
            if bound.queue:
                self._session.worker.throttling.alarm(bound.queue, now_ms)

    def leave(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._claim.end()


def _go_ahead(session: "Session", bounds: tuple[Bound, ...], came: int, now_ms: int) -> None:
    """Let counters owe what came within their debt because a re-authentication comes behind it."""
    if now_ms >= session.sasl.deadline_ms:
        for bound in bounds:
            bound.bring_forward(came, now_ms)


class ProducePolicy:
    __slots__ = ("_session", "_unanswered", "prefix")

    def __init__(self, session: "Session") -> None:
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
            if not self._session.ticket.ask(Waiting.REQUEST, account, bounds, came, now_ms, request.passed, size):
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
        """Return the rest of a request, all of which has been charged; ``over``: more than its quota had left."""
        account = self._session.identity.account
        claim = Claim(account.bounds(KIND), missing, now_ms, over=over)
        body = ProduceBody(self._session, account, claim, exchange)
        body.count(-missing)
        if claim.is_believed and account.limited(KIND):
            body.lapses_at(now_ms + COMING_MS)
        return body

    def _count_unanswered(self) -> int:
        """Return the reasons to stop behind a request without an answer: after many, other sessions have a turn."""
        self._unanswered += 1
        if self._unanswered < _MAX_UNANSWERED:
            return 0
        self._unanswered = 0
        return TURN
