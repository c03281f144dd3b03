"""The rule of a Fetch: it is charged by its answer, so it is lowered to what its quota has left before it goes."""

from struct import Struct
from typing import TYPE_CHECKING, Final

from protocol.fetch import empty_answer, fetch_session
from protocol.headers import has_fetch_limits
from proxy.session.admission import Ended, Ticket, Waiting
from proxy.session.exchange import Decision, Exchange, Forward, Need, Park, Reply, Request, RequestPrefix, Splice
from proxy.session.flow import ANSWERING, IN_LINE, OVERSIZED
from proxy.session.serving import CHARGE, FETCH_KEY
from proxy.usage.accounts import Account
from quotas.engine import Bound
from quotas.kinds import QuotaKind

if TYPE_CHECKING:
    from proxy.session.session import Session

KIND: Final = QuotaKind.CONSUMER_BYTE_RATE

_LIMITS: Final = Struct(">ii")
_INT32_MAX: Final = 2**31 - 1


def waiting(request: Request) -> Waiting:
    return Waiting.FETCH if request.api.spec.api_key == FETCH_KEY and not request.missing else Waiting.SHARE_FETCH


class FetchPolicy:
    """Lowers the Fetch requests of one connection, and charges their answers.

    Each Fetch reserves bytes that its answer may take from each of its counters. An answer that takes more waits in the
    counter's queue, as a request does.
    """

    __slots__ = ("_answer", "_joined", "_session", "prefix")

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._answer: Ticket | None = None
        """The ticket of an answer that waits; None before there was one."""
        self._joined: tuple[Bound, ...] = ()
        """The counters under which this connection fetches."""
        self.prefix = RequestPrefix()

    # ------------------------------------------------------------------------------------------------------- requests

    def before(self, request: Request, now_ms: int) -> Decision:
        """Forward a request, with max_bytes and min_bytes lowered to what its quota has left (KAFKA-9677: a broker does
        the same), or park it in its counter's queue.

        Raises ProtocolError if the request ends inside what has to be read of it.
        """
        session, edit = self._session, None
        api, account = request.api, session.identity.account
        field = self.prefix.find(request)
        if field is None:
            return request.need_more()
        bounds = account.limited(KIND)
        if bounds and session.worker.throttling.enforces:
            self._join(bounds)
            lowers = has_fetch_limits(api.spec)
            min_bytes, max_bytes = _LIMITS.unpack_from(request.chunk, field) if lowers else (0, _INT32_MAX)
            asked = max(max_bytes, 0)
            takes_its_turn = min_bytes > max_bytes or bool(request.passed)
            if takes_its_turn or not self._grant_whole(bounds, asked, now_ms):
                if any(exchange.actions & CHARGE for exchange in session.in_flight):
                    return Park(ANSWERING)  # one at a time, so that pipelining gains nothing
                if not session.ticket.ask(waiting(request), account, bounds, 0, now_ms, request.passed):
                    return Park(IN_LINE)
                granted = self._grant(bounds, asked, now_ms)
                if lowers and (granted < max_bytes or granted < min_bytes):
                    edit = Splice(field, field + _LIMITS.size, _LIMITS.pack(min(min_bytes, granted), granted))
        account.meter.fetch_requests += 1
        return Forward(request.expect(account, now_ms), edit)

    def _join(self, bounds: tuple[Bound, ...]) -> None:
        """Fetch under each of these counters, and under no other."""
        left = self._joined
        if bounds == left:
            return
        self._joined = bounds
        for bound in left:
            bound.fetches.leave(self)
        for bound in bounds:
            bound.fetches.join(self)

    def _grant_whole(self, bounds: tuple[Bound, ...], asked_bytes: int, now_ms: int) -> bool:
        """Reserve all that a Fetch asks for, where its quotas are far from being in force; returns False elsewhere."""
        if len(bounds) == 1:
            return bounds[0].fetches.grant_whole(self, asked_bytes, now_ms)
        if not all(bound.fetches.fits_whole(asked_bytes, now_ms) for bound in bounds):
            return False
        return all(bound.fetches.grant_whole(self, asked_bytes, now_ms) for bound in bounds)

    def _grant(self, bounds: tuple[Bound, ...], asked_bytes: int, now_ms: int) -> int:
        """Reserve a portion for a Fetch and return how many bytes it may ask for: of several counters the least."""
        granted = asked_bytes
        for bound in bounds:
            granted = bound.fetches.grant(self, granted, now_ms)
        for bound in bounds[:-1]:
            bound.fetches.grant(self, granted, now_ms)  # no more is reserved than can come
        return granted

    # -------------------------------------------------------------------------------------------------------- answers

    def after(self, exchange: Exchange, size: int, now_ms: int, wait: Ended | None) -> Park | None:
        """Charge an answer of ``size`` bytes, which then tells its throttle time; or park it in its counter's queue.

        Its throttle time so far is that of request_percentage: of both the longer one is given, and told, and of two
        that are equal that one (KafkaApis).
        """
        throttling, account, request_ms = self._session.worker.throttling, exchange.account, exchange.throttle_ms
        # The correlation id and the body, without the tag section of a v1 header: what Kafka measures.
        size -= exchange.api.spec.response_header_version
        bounds = account.limited(KIND) if throttling.enforces else ()
        if bounds and not self._may_answer(account, bounds, size, now_ms, wait):
            return Park(OVERSIZED)
        exchange.actions &= ~CHARGE
        exchange.throttle_ms = 0
        account.meter.fetch_bytes += size
        throttle_ms = account.charge(KIND, size, now_ms)
        throttling.counts.simulate(account, KIND, size, now_ms, id(self))
        if not throttling.enforces or not max(throttle_ms, request_ms):
            return None
        kind = KIND
        if throttle_ms <= request_ms:
            kind = QuotaKind.REQUEST_PERCENTAGE  # what it owes for its bytes stays owed
            for bound in bounds:
                if over_ms := bound.check(now_ms):
                    bound.owe(over_ms, now_ms)
        exchange.tell(self._session.throttle(account, kind, max(throttle_ms, request_ms), now_ms), now_ms)
        return None

    def _may_answer(
        self, account: Account, bounds: tuple[Bound, ...], size: int, now_ms: int, wait: Ended | None
    ) -> bool:
        """Whether an answer may be charged and passed on. One larger than what was reserved waits like a request."""
        self._join(bounds)
        ticket = self._answer
        passed = () if wait is None else wait.passed
        for bound in bounds:
            if bound.fetches.covers(self, size) or (ticket is not None and ticket.may_pass(bound, passed)):
                continue
            if bound.owed_ms(now_ms):
                bound.fetches.forget(self)
                if ticket is None:
                    ticket = self._answer = Ticket(self._session)
                ticket.wait(Waiting.ANSWER, account, bound, size, now_ms)
                return False
        for bound in bounds:
            if bound.queue:
                bound.queue.owe(self._session.identity.path(account), bound.fetches.turns_beyond(size))
            bound.fetches.answered(self, size)
            if bound.queue:
                self._session.worker.throttling.alarm(bound.queue, now_ms)
        if ticket is not None:
            ticket.went(now_ms)
        return True

    # ------------------------------------------------------------------------------------------------ how it ends

    def answer_empty(self, request: Request, throttle_ms: int) -> Reply | Need:
        """Answer a Fetch without data, as a broker answers one over its quota."""
        session, spec = self._session, request.api.spec
        field = self.prefix.find(request)
        if field is None:
            return request.need_more()
        answer = empty_answer(spec, request.correlation_id, throttle_ms, fetch_session(spec, request.chunk, field))
        session.identity.account.meter.fetch_requests += 1
        request.count(session.identity.account)
        session.worker.throttling.answered_empty += 1
        return Reply(answer)

    def client_finished(self, now_ms: int) -> None:
        """Ask again: an answer whose client has closed does not wait any more."""
        if self._answer is not None:
            self._answer.client_finished(now_ms)

    def leave(self) -> None:
        """Fetch under no counter any more: the connection is gone."""
        if self._answer is not None:
            self._answer.leave()
        joined = self._joined
        self._join(())
        for bound in joined:
            if bound.queue:
                self._session.worker.throttling.alarm(bound.queue, self._session.worker.clock())
