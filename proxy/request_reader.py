"""What single requests need beyond being forwarded: whose they are, what they are charged, what is taken note of.

The stream they come in is the business of ``RequestSide``.
"""

from collections.abc import Callable
from struct import Struct

from protocol.errors import Cause, ProtocolError
from protocol.frames import REQUEST_HEAD, FrameSplitter, Head
from protocol.headers import client_id, fetch_limits_offset, request_body_offset
from proxy.identity.sasl import SaslObserver
from proxy.in_flight import InFlight, Rules
from proxy.prelude import AFTER_CORRELATION_ID, MORE, Prelude
from proxy.reasons import ANSWERING, TURN
from proxy.serving import AUTHENTICATE, COORDINATE, FETCH, LOOK_UP, PRODUCE, TELL, Served
from proxy.usage import NOBODY, ListenerMeters, Meter
from quotas.engine import Bound

ACKS_0 = b"\0\0"

_UNKNOWN_BROKER = -1
_MAX_UNANSWERED = 1024
_LIMITS = Struct(">ii")

Throttle = Callable[[Bound, Meter, int, int], int]
"""(bound, meter, throttle time computed, now) → the throttle time applied."""


class RequestReader:
    """Reads the requests of one client, one at a time."""

    __slots__ = (
        "_client_id",
        "_counted",
        "_edits",
        "_fetch_prelude",
        "_in_flight",
        "_meter",
        "_meters",
        "_on_turn",
        "_owner",
        "_produce_prelude",
        "_rules",
        "_sasl",
        "_served",
        "_throttle",
        "_unanswered",
        "coordinates",
        "reasons",
        "splitter",
    )

    def __init__(
        self,
        rules: Rules,
        in_flight: InFlight,
        throttle: Throttle,
        on_turn: Callable[[], None],
        sasl: SaslObserver,
        meters: ListenerMeters,
        user: str,
    ) -> None:
        self._rules = rules
        self._in_flight = in_flight
        self._throttle = throttle
        self._on_turn = on_turn
        self._unanswered = 0
        self._sasl = sasl
        self._served = rules.served
        self._owner = (user, _UNKNOWN_BROKER)
        self._meters = meters
        self._meter = meters.nobody
        self._client_id = NOBODY
        """How the client-id of ``_meter`` stands in a request: its length and its bytes."""
        self._counted = False
        """The connection has been counted, for whom it was when it was known first."""
        self.splitter = FrameSplitter(REQUEST_HEAD, rules.request_limit)
        self.reasons = 0
        self.coordinates = False
        """It carries group or transaction traffic."""
        self._edits: list[tuple[int, bytes]] = []
        self._produce_prelude = Prelude(PRODUCE)
        self._fetch_prelude = Prelude(FETCH)

    # --------------------------------------------------------------------------------------------- one request

    def read(self, api: Served, chunk: bytes, position: int, head: Head, now_ms: int) -> bool:
        """Do what the request at ``position`` needs; False if what that takes is not all there, and was held.

        Raises ProtocolError if the request ends inside what has to be read of it.
        """
        if not chunk.startswith(self._client_id, position + AFTER_CORRELATION_ID) and not self._find_meter(
            api, chunk, position, head
        ):
            return False
        if api.on_request in (PRODUCE, FETCH):
            return self._charge(api, chunk, position, head, now_ms)
        if api.on_request == AUTHENTICATE:
            return self._observe(api, chunk, position, head, now_ms)
        if api.on_request == LOOK_UP and head[0] > (limit := self._rules.find_coordinator_limit):
            raise ProtocolError(
                Cause.FRAME_TOO_LARGE, f"{api.spec} request of {head[0]} bytes, limits.find_coordinator is {limit}"
            )
        self.coordinates = self.coordinates or api.on_request == COORDINATE
        self._expect(api, head, None, now_ms)
        return True

    def _expect(self, api: Served, head: Head, bound: Bound | None, now_ms: int) -> None:
        api.requests += 1
        self._meter.other_requests += 1
        self._meter.other_bytes += 4 + head[0]
        self._in_flight.append((head[2], api.on_answer, api, 0, 0, bound, self._meter, now_ms))

    def _find_meter(self, api: Served, chunk: bytes, position: int, head: Head) -> bool:
        """Find the meter of a client-id that the last request did not have; False if it is not all there.

        Raises ProtocolError if the frame ends inside its header.
        """
        if request_body_offset(api.spec, chunk, position, position + 4 + head[0]) < 0:
            self.splitter.hold_more(chunk, position, head[0])
            return False
        user, broker = self._owner
        meter = self._meters.find(broker, user, client_id(api.spec, chunk, position))
        self._meter.connections -= 1
        meter.connections += 1
        if not self._counted and not self.restricted:
            self._counted = True
            meter.connections_opened += 1
        begin = position + AFTER_CORRELATION_ID
        self._meter = meter
        self._client_id = chunk[begin : begin + 2 + max(head[3], 0)]
        return True

    def _charge(self, api: Served, chunk: bytes, position: int, head: Head, now_ms: int) -> bool:
        """Charge a Produce, lower a Fetch; False if what that needs is not all there and was held."""
        size: int = head[0]
        correlation_id: int = head[2]
        prelude = self._produce_prelude if api.on_request == PRODUCE else self._fetch_prelude
        field = prelude.find(api, chunk, position, position + 4 + size, self._owner, self._rules.engine)
        if field == MORE:
            self.splitter.hold_more(chunk, position, size)
            return False
        prelude.meter = self._meter
        if api.on_request == PRODUCE:
            api.requests += 1
            self._meter.produce_requests += 1
            self._meter.produce_bytes += size
            throttle_ms = prelude.bound.charge(size, now_ms)
            self._charged(prelude, correlation_id, throttle_ms, chunk.startswith(ACKS_0, field), now_ms)
        else:
            self._lower(api, chunk, field, prelude.bound)
            self._meter.fetch_requests += 1
            self._expect(api, head, prelude.bound, now_ms)
        return True

    def _charged(self, prelude: Prelude, correlation_id: int, throttle_ms: int, acks_0: bool, now_ms: int) -> None:
        """Mute for what a charge asked for, and expect the answer that is to tell it."""
        api, bound, meter = prelude.api, prelude.bound, prelude.meter
        if throttle_ms:
            throttle_ms = self._throttle(bound, meter, throttle_ms, now_ms)
        if not acks_0:  # with acks=0 no answer comes: the mute is all there is
            actions = api.on_answer | TELL if throttle_ms else api.on_answer
            self._in_flight.append(
                (correlation_id, actions, api, throttle_ms, now_ms + throttle_ms, bound, meter, now_ms)
            )
            return
        self._unanswered += 1  # no answer bounds how many of them come at once: a chunk has room for 10,000
        if self._unanswered >= _MAX_UNANSWERED:
            self._unanswered = 0
            self._wait_for_turn()

    def _wait_for_turn(self) -> None:
        """Go on when others have had their turn."""
        self.reasons |= TURN
        self._rules.later(self._on_turn)

    def _lower(self, api: Served, chunk: bytes, field: int, bound: Bound) -> None:
        """Lower max_bytes and min_bytes of a Fetch to what its quota allows at once (KAFKA-9677)."""
        cap = bound.cap()
        if cap is None or fetch_limits_offset(api.spec) < 0:
            return
        min_bytes, max_bytes = _LIMITS.unpack_from(chunk, field)
        if max_bytes > cap or min_bytes > cap:
            max_bytes = min(max_bytes, cap)
            self._edits.append((field, _LIMITS.pack(min(min_bytes, max_bytes), max_bytes)))

    def _observe(self, api: Served, chunk: bytes, position: int, head: Head, now_ms: int) -> bool:
        """Take a SASL request; False if it is not all there and was held.

        What the client sends behind it waits for the answer, as it does at the broker: it belongs to whoever the
        client then is, and of two tokens under way no answer could be taken for that of the other.
        """
        size: int = head[0]
        end = position + 4 + size
        if size > self._rules.unauthenticated_request_limit:
            raise ProtocolError(Cause.FRAME_TOO_LARGE, f"{api.spec} request of {size} bytes")
        if end > len(chunk):
            self.splitter.hold(chunk, position, 4 + size)
            return False
        self._sasl.request(api.spec, chunk[position:end])
        if not self._sasl.authenticated:
            self.restrict()
        self._expect(api, head, None, now_ms)
        self.reasons |= ANSWERING
        return True

    # ------------------------------------------------------------------------------------------- whose they are

    def meet(self, broker_id: int) -> None:
        """Charge for the broker of that node id from now on (-1 while it is not known): quotas are per broker."""
        self._owner = (self._owner[0], broker_id)
        self._forget_preludes()
        self._client_id = NOBODY

    @property
    def user(self) -> str:
        """Whom requests are charged to from now on."""
        return self._owner[0]

    def identify(self, user: str) -> None:
        """Charge the requests that follow to ``user``; those in flight stay with whom they were charged to."""
        self._owner = (user, self._owner[1])
        self._forget_preludes()
        self._client_id = NOBODY

    @property
    def restricted(self) -> bool:
        """Who the client is has not been proved yet, where it has to be."""
        return self._served is not self._rules.served

    def restrict(self) -> None:
        """Take small requests only, until the broker has answered an ordinary one: then the client is known."""
        self._served = self._rules.served_before_authentication
        self.splitter.limit = self._rules.unauthenticated_request_limit

    def lift_restriction(self) -> None:
        """Take requests of any size that the limits allow."""
        self._served = self._rules.served
        self.splitter.limit = self._rules.request_limit
        self._forget_preludes()

    def _forget_preludes(self) -> None:
        self._produce_prelude.forget()
        self._fetch_prelude.forget()

    def leave(self) -> None:
        """Take the connection, which is over, off its meter."""
        self._meter.connections -= 1
        self._meter = self._produce_prelude.meter = self._fetch_prelude.meter = self._meters.nobody
        self._client_id = NOBODY
