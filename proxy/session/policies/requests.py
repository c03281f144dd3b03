"""The policy that each request has to pass: found by its API, and by whether the client is known."""

from typing import TYPE_CHECKING

from protocol.error_codes import UNSUPPORTED_VERSION
from protocol.errors import Cause, ProtocolError
from protocol.frames import Head
from proxy.session.admission import Ended
from proxy.session.exchange import ACKS_0, AFTER_CORRELATION_ID, Body, Decision, Forward, Need, Park, Reply, Request
from proxy.session.flow import ANSWERING
from proxy.session.policies.fetch import FetchPolicy
from proxy.session.policies.login import LoginPolicy
from proxy.session.policies.produce import ProducePolicy
from proxy.session.policies.request_time import Cost, RequestTimePolicy
from proxy.session.policies.topics import TopicsPolicy
from proxy.session.serving import (
    ANSWER,
    API_VERSIONS_KEY,
    AUTHENTICATE,
    COORDINATE,
    FETCH,
    GREET,
    LOOK_UP,
    MUTATE,
    PRODUCE,
    PROVE,
    Answerer,
    LocalRequest,
    NewerApiVersions,
    Served,
)

if TYPE_CHECKING:
    from proxy.session.session import Session


class Policies:
    """Judges the requests of one connection, one at a time."""

    __slots__ = ("_session", "costs", "fetches", "login", "produces", "served", "topics")

    def __init__(self, session: "Session") -> None:
        self._session = session
        self.login = LoginPolicy(session)
        self.produces = ProducePolicy(session)
        self.fetches = FetchPolicy(session)
        self.topics = TopicsPolicy(session)
        self.costs = RequestTimePolicy(session)
        self.served = session.worker.served

    def before(self, chunk: bytes, position: int, head: Head, now_ms: int, wait: Ended | None = None) -> Decision:
        """Judge the request at ``position``, whose wait in a queue has ended so if it has waited.

        Raises ProtocolError if it ends inside what has to be read of it, or is not served.
        """
        api = self.served.get(head[1])
        if api is None:
            if self.restricted and self.login.begins_gssapi(head[1]):
                return Need(0)  # it is read as a token
            return self._answer(self._session.worker.answerer(head[1]), chunk, position, head[0])
        request = Request(api, chunk, position, head, () if wait is None else wait.passed)
        if self._session.abandoned and (dropped := self._drop(request)):
            return dropped
        if hold := self._identify(request, now_ms):
            return hold
        ticket = self._session.ticket
        if wait is not None and wait.empty_ms:
            answer = self.fetches.answer_empty(request, wait.empty_ms)
            ticket.went(now_ms)
            return answer
        cost: Cost | None = None
        if self._session.worker.costs.on and not self.restricted and api.on_request != AUTHENTICATE:
            cost = self.costs.cost(request, self.produces.prefix if api.on_request == PRODUCE else self.fetches.prefix)
            if cost is None:
                return request.need_more()
            if park := self.costs.before(request, cost, now_ms):
                return park
        decision = self._judge(request, now_ms)
        if isinstance(decision, (Forward, Reply)):
            ticket.went(now_ms)
            if cost is not None:
                self.costs.went(api, cost, now_ms)
        if isinstance(decision, Forward) and request.missing:
            self._expect_rest(request, decision, cost)
        return decision

    def _identify(self, request: Request, now_ms: int) -> Park | Need | None:
        """Find whose a request is; hold it if that is not known yet."""
        if self.restricted:  # what anybody may claim to be is neither counted nor kept
            if request.api.on_request != PROVE:
                return None
            if not self._session.in_flight:
                self.login.ask(now_ms)
            return Park(ANSWERING)  # until it is known whose it is: then it waits and is charged as any other of theirs
        if request.chunk.startswith(self._session.identity.client_id_bytes, request.position + AFTER_CORRELATION_ID):
            return None
        if self._session.identity.crowded:
            return Park(ANSWERING)
        return None if self._session.identity.find(request) else request.need_more()

    def _drop(self, request: Request) -> Reply | Need | None:
        """Drop a request, unless it expects no answer: that one goes, as at a broker."""
        if request.api.on_request == PRODUCE:
            field = self.produces.prefix.find(request)
            if field is not None and request.chunk.startswith(ACKS_0, field):
                return None
        self._session.worker.throttling.dropped += 1
        if not request.missing:
            return Reply(b"")
        self._session.worker.later(self._session.close)  # the broker must not see a part of it
        return Need(4 + request.size)

    def _judge(self, request: Request, now_ms: int) -> Decision:
        on_request = request.api.on_request
        if on_request == PRODUCE:
            return self.produces.before(request, now_ms)
        if on_request == FETCH:
            return self.fetches.before(request, now_ms)
        if on_request == MUTATE:
            return self.topics.before(request, now_ms)
        if on_request == AUTHENTICATE:
            return self._log_in(request, now_ms)
        if on_request == ANSWER:
            answerer = self._session.worker.answerer(request.api.spec.number)
            if answerer.most_bytes(request.api.spec.api_key, self._session.identity.user):
                return self._answer(answerer, request.chunk, request.position, request.size, request.api)
        if on_request == GREET:
            self.login.check_size(request)
        if on_request == LOOK_UP:
            request.check_size(self._session.worker.find_coordinator_limit, "limits.find_coordinator")
        identity = self._session.identity
        identity.coordinates = identity.coordinates or on_request == COORDINATE
        return Forward(request.expect(identity.account, now_ms))

    def _expect_rest(self, request: Request, forward: Forward, cost: Cost | None) -> None:
        """Have the rest of a request counted as it comes, and charged its cost when all of it has."""
        if forward.body is None:
            forward.body = Body(self._session.identity.account)
            forward.body.count(-request.missing)
        if cost is not None:
            forward.body.rest_us = cost.rest_us

    def _log_in(self, request: Request, now_ms: int) -> Decision:
        """Have a login observed, once all of it is there; nothing behind it is read before its answer."""
        self.login.check_size(request)
        if request.missing:
            return Need(4 + request.size)
        self._session.sasl.request(request.api.spec, request.frame)
        if not self._session.sasl.authenticated:
            self.restrict()
        return Forward(request.expect(self._session.identity.account, now_ms), stop=ANSWERING)

    # ---------------------------------------------------------------------------------------------- answers of ours

    def _answer(
        self, answerer: Answerer, chunk: bytes, position: int, size: int, api: Served | None = None
    ) -> Decision:
        """Have a request answered here, once all of it is there and all before it has been answered."""
        api_key = API_VERSIONS_KEY if api is None else api.spec.api_key
        most = answerer.most_bytes(api_key, self._session.identity.user)
        if size > most:
            raise ProtocolError(
                Cause.FRAME_TOO_LARGE,
                f"{api.spec if api else 'ApiVersions'} request of {size} bytes, and the proxy answers those of {most}; "
                "longer requests about quotas are for users in quotas.admins",
            )
        end = position + 4 + size
        if end > len(chunk):
            return Need(4 + size)
        if not self._session.idle:
            return Park(ANSWERING)
        account = self._session.identity.account
        account.meter.other_requests += 1
        account.meter.other_bytes += 4 + size
        client_id = ""
        if api is not None:
            api.requests += 1
            client_id = account.key.client_id
        if isinstance(answerer, NewerApiVersions):
            self._session.worker.errors.count(API_VERSIONS_KEY, UNSUPPORTED_VERSION)
        local = LocalRequest(chunk[position:end], self._session.identity.user, client_id, self._session.peer)
        return Reply(answerer.answer(local, self._session.answer_locally))

    # ------------------------------------------------------------------------------------------- whose they are

    @property
    def restricted(self) -> bool:
        """The client has to prove who it is, and has not yet."""
        return self.served is not self._session.worker.served

    def restrict(self) -> None:
        """Take logins only, until the broker has accepted one: what else comes waits until the client is known."""
        self.served = self._session.worker.served_before_authentication
        self._session.identity.forget()

    def lift_restriction(self) -> None:
        self.served = self._session.worker.served
