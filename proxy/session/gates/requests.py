"""What a request needs before it may go: to be somebody's, to be charged, to be looked at, or to be answered here."""

from typing import TYPE_CHECKING, Final

from protocol.errors import Cause, ProtocolError
from protocol.frames import FrameSplitter, Head
from protocol.headers import MORE
from proxy.session.body import Body
from proxy.session.gates import local
from proxy.session.gates.fetch import FetchGate
from proxy.session.gates.login import LoginGate
from proxy.session.gates.mutations import GOES, GOES_CHANGED, REFUSED, MutationGate
from proxy.session.gates.produce import ProduceGate
from proxy.session.gates.request_cost import RequestCostGate
from proxy.session.in_flight import API, InFlight
from proxy.session.local_answers import Answerer
from proxy.session.sender import AFTER_CORRELATION_ID, UNREAD, Sender
from proxy.session.serving import (
    ANSWER,
    AUTHENTICATE,
    COORDINATE,
    FETCH,
    GREET,
    LOOK_UP,
    MUTATE,
    PRODUCE,
    PROVE,
    Served,
)
from proxy.session.states import ANSWERING, LOCAL
from proxy.session.waits import Waits

if TYPE_CHECKING:
    from proxy.session.pair import Pair

TAKEN: Final = 0
"""It goes to the broker."""
HELD: Final = 1
"""It is kept, with all that follows: it is not all there, or has to wait."""
ANSWERED: Final = 2
"""It does not go to the broker: the proxy answers it."""
REPLACED: Final = 3
"""Another one goes to the broker instead (``take_replacement``)."""


class RequestGates:
    """Reads the requests of one connection, one at a time, and asks the gate that each has to pass."""

    __slots__ = (
        "_in_flight",
        "_pair",
        "_splitter",
        "_waits",
        "coordinates",
        "costs",
        "fetches",
        "login",
        "mutations",
        "produces",
        "reasons",
        "sender",
        "served",
    )

    def __init__(
        self,
        pair: "Pair",
        in_flight: InFlight,
        splitter: FrameSplitter,
        sender: Sender,
        produces: ProduceGate,
        fetches: FetchGate,
        mutations: MutationGate,
        waits: Waits,
    ) -> None:
        self._pair = pair
        self._in_flight = in_flight
        self._splitter = splitter
        self.sender = sender
        self.login = LoginGate(pair, sender, in_flight)
        self.produces = produces
        self.fetches = fetches
        self.mutations = mutations
        self.costs = RequestCostGate(pair, sender, in_flight, waits)
        self._waits = waits
        self.served = pair.rules.served
        self.reasons = 0
        """Why nothing is to be read behind the last request."""
        self.coordinates = False
        """The connection carries group or transaction traffic."""

    def read(self, chunk: bytes, position: int, head: Head, now_ms: int) -> int:
        """Do what the request at ``position`` needs, and return what has become of it.

        Raises ProtocolError if the request ends inside what has to be read of it, or is not served.
        """
        api = self.served.get(head[1])
        if api is None:
            if self.restricted and self.login.begins_gssapi(head[1]):
                return self._hold(chunk, position, 0)
            return self._answer(self._pair.rules.answerer(head[1]), chunk, position, head)
        body = UNREAD
        if self.restricted:  # what anybody may claim to be is neither counted nor kept
            if api.on_request == PROVE:
                return self._prove(chunk, position, now_ms)
        elif not chunk.startswith(self.sender.client_id_bytes, position + AFTER_CORRELATION_ID):
            if self.sender.crowded:
                return self._hold(chunk, position, ANSWERING)
            self._forget_prefixes()
            body = self.sender.find(api, chunk, position, head)
            if body == MORE:
                return self._hold_more(chunk, position, head)
        if self._pair.rules.costs.on and not self.restricted and api.on_request != AUTHENTICATE:
            return self._read_charged(api, chunk, position, head, body, now_ms)
        outcome = self._read(api, chunk, position, head, body, now_ms)
        if outcome != HELD:
            self._waits.went(now_ms)
        return outcome

    def _read_charged(self, api: Served, chunk: bytes, position: int, head: Head, body: int, now_ms: int) -> int:
        """Do the same of a request that is charged its cost (request_percentage)."""
        prefix = self.produces.prefix if api.on_request == PRODUCE else self.fetches.prefix
        cost = self.costs.cost(api, chunk, position, head[0], prefix, body)
        if cost is None:
            return self._hold_more(chunk, position, head)
        if reason := self.costs.why_wait(api, cost, self.coordinates, now_ms):
            return self._hold(chunk, position, reason)
        outcome = self._read(api, chunk, position, head, body, now_ms)
        if outcome != HELD:
            self._waits.went(now_ms)
            self.costs.went(api, cost, self.coordinates, now_ms)
        return outcome

    def _read(self, api: Served, chunk: bytes, position: int, head: Head, body: int, now_ms: int) -> int:
        if api.on_request == PRODUCE:
            verdict = self.produces.request(api, chunk, position, head, body, now_ms)
            if not verdict:
                self.reasons |= self.produces.after()
        elif api.on_request == FETCH:
            verdict = self.fetches.request(api, chunk, position, head, body, now_ms)
        else:
            return self._read_other(api, chunk, position, head, now_ms)
        if verdict == MORE:
            return self._hold_more(chunk, position, head)
        return self._hold(chunk, position, verdict) if verdict else TAKEN

    def _read_other(self, api: Served, chunk: bytes, position: int, head: Head, now_ms: int) -> int:
        if api.on_request == AUTHENTICATE:
            return self._log_in(api, chunk, position, head, now_ms)
        if api.on_request == ANSWER:
            return self._answer(self._pair.rules.answerer(head[1]), chunk, position, head, api)
        if api.on_request == MUTATE:
            return self._mutate(api, chunk, position, head, now_ms)
        if api.on_request == GREET:
            self.login.check_size(api, head)
        if api.on_request == LOOK_UP and head[0] > (limit := self._pair.rules.find_coordinator_limit):
            raise ProtocolError(
                Cause.FRAME_TOO_LARGE, f"{api.spec} request of {head[0]} bytes, limits.find_coordinator is {limit}"
            )
        self.coordinates = self.coordinates or api.on_request == COORDINATE
        self.login.expect(api, head, now_ms)
        return TAKEN

    def _hold(self, chunk: bytes, position: int, reason: int) -> int:
        """Keep the request at ``position``, and what follows, while ``reason`` holds."""
        self._splitter.hold(chunk, position, 0)
        self.reasons |= reason
        return HELD

    def _hold_more(self, chunk: bytes, position: int, head: Head) -> int:
        """Keep it until more of it has come."""
        self._splitter.hold_more(chunk, position, head[0])
        return HELD

    def _hold_until_whole(self, chunk: bytes, position: int, head: Head) -> int:
        self._splitter.hold(chunk, position, 4 + head[0])
        return HELD

    def _prove(self, chunk: bytes, position: int, now_ms: int) -> int:
        """Keep a request until it is known whose it is: then it waits and is charged as any other of theirs."""
        if not self._in_flight:
            self.login.ask(now_ms)
        return self._hold(chunk, position, ANSWERING)

    def answered(self, answer: bytes) -> None:
        """Take the broker's answer to whether it serves the client."""
        if self.login.answered(answer):
            self.lift_restriction()

    def _log_in(self, api: Served, chunk: bytes, position: int, head: Head, now_ms: int) -> int:
        if not self.login.request(api, chunk, position, head):
            return self._hold_until_whole(chunk, position, head)
        if not self._pair.sasl.authenticated:
            self.restrict()
        self.login.expect(api, head, now_ms)
        self.reasons |= ANSWERING
        return TAKEN

    def _mutate(self, api: Served, chunk: bytes, position: int, head: Head, now_ms: int) -> int:
        """Have a request judged that creates or deletes topics, once all of it is there, if a quota holds for that."""
        size: int = head[0]
        mutations = self.mutations
        bounds = mutations.bounds()
        if not bounds or mutations.passes(bounds, size):
            self.login.expect(api, head, now_ms)
            return TAKEN
        verdict = mutations.may_come(api, bounds, size)
        end = position + 4 + size
        if verdict == GOES and end > len(chunk):
            return self._hold_until_whole(chunk, position, head)
        if verdict == GOES:
            verdict = mutations.request(api, bounds, chunk[position:end], head, now_ms)
        if verdict == GOES_CHANGED:
            return REPLACED
        if verdict == REFUSED:
            return ANSWERED
        if verdict == LOCAL:
            self.reasons |= LOCAL
            return ANSWERED
        return self._hold(chunk, position, verdict) if verdict else TAKEN

    def _answer(self, answerer: Answerer, chunk: bytes, position: int, head: Head, api: Served | None = None) -> int:
        """Have a request answered here, once all of it is there and all before it has been answered."""
        size: int = head[0]
        most = answerer.most_bytes(self.sender.user)
        if size > most:
            raise ProtocolError(
                Cause.FRAME_TOO_LARGE,
                f"{api.spec if api else 'ApiVersions'} request of {size} bytes, and the proxy answers those of {most}; "
                "longer requests about quotas are for users in quotas.admins",
            )
        end = position + 4 + size
        if end > len(chunk):
            return self._hold_until_whole(chunk, position, head)
        if not self._pair.idle:
            return self._hold(chunk, position, ANSWERING)
        if not local.answered(self._pair, self.sender, answerer, chunk[position:end], api):
            self.reasons |= LOCAL
        return ANSWERED

    def take_reasons(self) -> int:
        """Return why nothing is to be read behind the last request."""
        reasons, self.reasons = self.reasons, 0
        return reasons

    def write_local(self, answer: bytes) -> None:
        """Send the answer of the proxy's own that took its time."""
        local.send(self._pair, self.sender, answer)

    def body(self, missing: int) -> Body:
        """Return the last request's body, of which so much is still to come."""
        body: Body | None = self.produces.take_body(missing)
        if body is None:
            last = self._in_flight[-1] if self._in_flight else None
            if last is not None and last[API].on_request == PRODUCE and not self.restricted:
                body = self.produces.under_way(last, missing)
            else:
                body = Body(self.sender.account)
            body.count(-missing)
        body.rest_us = self.costs.take_rest_us()
        return body

    # ------------------------------------------------------------------------------------------- whose they are

    def set_broker(self, broker_id: int) -> None:
        """Charge for the broker of that node id from now on (-1 while it is not known): quotas are per broker."""
        self.sender.set_broker(broker_id)
        self._forget_prefixes()

    def identify(self, user: str) -> None:
        """Charge the requests that follow to ``user``; those in flight stay with whom they were charged to."""
        self.sender.identify(user)
        self._forget_prefixes()

    @property
    def restricted(self) -> bool:
        """Who the client is has not been proved yet, where it has to be."""
        return self.served is not self._pair.rules.served

    def restrict(self) -> None:
        """Take logins only, until the broker has accepted one: what else comes waits until the client is known."""
        self.served = self._pair.rules.served_before_authentication
        self.sender.forget()
        self._forget_prefixes()

    def lift_restriction(self) -> None:
        """Take requests of every kind."""
        self.served = self._pair.rules.served

    def _forget_prefixes(self) -> None:
        self.produces.prefix.forget()
        self.fetches.forget()

    def leave(self) -> None:
        """Give every account back: the connection is over."""
        self.mutations.leave(self._pair.rules.clock())
        self.sender.leave()
        self._forget_prefixes()
