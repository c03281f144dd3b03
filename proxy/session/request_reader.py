"""What single requests need beyond being forwarded: whose they are, what they are charged, what is taken note of.

The stream they come in is the business of ``RequestSide``.
"""

from struct import Struct

from protocol.errors import Cause, ProtocolError
from protocol.fetch import NO_SESSION, empty_answer, fetch_session
from protocol.frames import REQUEST_HEAD, FrameSplitter, Head
from protocol.headers import fetch_limits_offset, has_fetch_limits, produce_acks, request_body_offset
from proxy.runtime.names import client_id
from proxy.session.body import COMING_MS, Body
from proxy.session.in_flight import ACTIONS, InFlight, expect
from proxy.session.pair import Pair
from proxy.session.reasons import ANSWERING, IN_LINE, TURN
from proxy.session.request_prefix import AFTER_CORRELATION_ID, MAX_KEPT_BYTES, MORE, RequestPrefix
from proxy.session.serving import AUTHENTICATE, CHARGE, COORDINATE, FETCH, FETCH_KEY, LOOK_UP, PRODUCE, Served
from proxy.session.waits import Waits, What
from proxy.usage.meters import NOBODY, ListenerMeters
from quotas.engine import Bound

ACKS_0 = b"\0\0"

_UNKNOWN_BROKER = -1
_MAX_UNANSWERED = 1024
_LIMITS = Struct(">ii")
_INT32_MAX = 2**31 - 1


class RequestReader:
    """Reads the requests of one client, one at a time."""

    __slots__ = (
        "_body",
        "_client_id",
        "_counted",
        "_edits",
        "_fetch_prefix",
        "_in_flight",
        "_meter",
        "_meters",
        "_owner",
        "_pair",
        "_produce_prefix",
        "_rules",
        "_sasl",
        "_served",
        "_unanswered",
        "_waits",
        "coordinates",
        "reasons",
        "splitter",
    )

    def __init__(self, pair: Pair, in_flight: InFlight, waits: Waits, meters: ListenerMeters, user: str) -> None:
        self._pair = pair
        rules = self._rules = pair.rules
        self._in_flight = in_flight
        self._waits = waits
        self._body: Body | None = None
        """Of the request under way, while its end is still to come."""
        self._unanswered = 0
        self._sasl = pair.sasl
        self._served = rules.served
        self._owner = (user, _UNKNOWN_BROKER)
        self._meters = meters
        self._meter = meters.nobody
        self._client_id = NOBODY
        """How the client-id of ``_meter`` stands in a request: its length and its bytes; NOBODY if they are many."""
        self._counted = False
        """The connection has been counted, for whom it was when it was known first."""
        self.splitter = FrameSplitter(REQUEST_HEAD, rules.request_limit)
        self.reasons = 0
        self.coordinates = False
        """It carries group or transaction traffic."""
        self._edits: tuple[tuple[int, bytes], ...] = ()
        self._produce_prefix = RequestPrefix(PRODUCE)
        self._fetch_prefix = RequestPrefix(FETCH)

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
        self._in_flight.append(expect(head[2], api, self._meter, now_ms, bound))

    def _find_meter(self, api: Served, chunk: bytes, position: int, head: Head) -> bool:
        """Find the meter of a client-id that the last request did not have; False if it is not all there.

        Before authentication there is none: what anybody may claim to be is neither counted nor kept.
        Raises ProtocolError if the frame ends inside its header.
        """
        if self.restricted:
            return True
        if request_body_offset(api.spec, chunk, position, position + 4 + head[0]) < 0:
            self.splitter.hold_more(chunk, position, head[0])
            return False
        user, broker = self._owner
        meter = self._meters.find(broker, user, client_id(api.spec, chunk, position))
        self._meter.connections -= 1
        meter.connections += 1
        if not self._counted:
            self._counted = True
            meter.connections_opened += 1
        begin, length = position + AFTER_CORRELATION_ID, 2 + max(head[3], 0)
        self._meter = meter
        self._client_id = chunk[begin : begin + length] if length <= MAX_KEPT_BYTES else NOBODY
        return True

    def _charge(self, api: Served, chunk: bytes, position: int, head: Head, now_ms: int) -> bool:
        """Charge a Produce, lower a Fetch; False if what that needs is not all there, or its turn has not come."""
        end = position + 4 + head[0]
        if self.restricted:
            return self._pass(api, chunk, position, head, now_ms)
        prefix = self._produce_prefix if api.on_request == PRODUCE else self._fetch_prefix
        field = prefix.find(api, chunk, position, end, self._owner, self._rules.engine)
        if field == MORE:
            self.splitter.hold_more(chunk, position, head[0])
            return False
        prefix.meter = self._meter
        if api.on_request == FETCH:
            return self._lower(prefix, chunk, position, field, head, now_ms)
        bound = prefix.bound
        size: int = head[0]
        missing = end - len(chunk)
        came = size - max(missing, 0)
        acks_0 = chunk.startswith(ACKS_0, field)
        if not self._rules.throttling.enforces:
            throttle_ms = 0
            bound.charge(size, now_ms)
            self._rules.throttling.imagine(bound, self._meter, size, now_ms)
            prefix.forget()  # the next one has to come by here too
        elif bound.shut and not self._waits.ask(What.REQUEST, bound, self._meter, came, now_ms):
            return self._wait(chunk, position, IN_LINE)
        else:
            self._go_ahead(bound, came, now_ms)
            throttle_ms = bound.charge(size, now_ms)
        api.requests += 1
        self._meter.produce_requests += 1
        self._meter.produce_bytes += size
        self._charged(prefix, head[2], throttle_ms, acks_0, missing, now_ms)
        return True

    def _go_ahead(self, bound: Bound, came: int, now_ms: int) -> None:
        """Let the counter owe what came within a debt because a re-authentication stands behind it."""
        if bound.shut and now_ms >= self._sasl.deadline_ms and (counter := bound.live).owed_ms(now_ms):
            counter.bring_forward(came, now_ms)

    def _wait(self, chunk: bytes, position: int, reason: int) -> bool:
        """Keep the request at ``position``, and what follows, while ``reason`` holds."""
        self.splitter.hold(chunk, position, 0)
        self.reasons |= reason
        return False

    def _pass(self, api: Served, chunk: bytes, position: int, head: Head, now_ms: int) -> bool:
        """Let a Produce or Fetch go that nobody can be charged for: who sends it has not been proved.

        A broker that demands proof refuses it. One that does not proves the client by its answer, and what the client
        sends behind it waits for that.
        """
        end = position + 4 + head[0]
        body = request_body_offset(api.spec, chunk, position, end)
        acks = produce_acks(api.spec, chunk, body, end) if body >= 0 and api.on_request == PRODUCE else 1
        if body < 0 or acks is None:
            self.splitter.hold_more(chunk, position, head[0])
            return False
        if acks:
            self._expect(api, head, None, now_ms)
            self.reasons |= ANSWERING
        else:
            api.requests += 1
            if end > len(chunk):
                self._body = Body(self._meters.nobody, None, None)
        return True

    def _charged(
        self, prefix: RequestPrefix, correlation_id: int, throttle_ms: int, acks_0: bool, missing: int, now_ms: int
    ) -> None:
        """Mute for what a charge asked for, and expect the answer that is to tell it.

        Of a request that is more than its quota has left only what has come is charged: ``missing`` is still to come.
        """
        api, bound, meter = prefix.api, prefix.bound, prefix.meter
        as_it_comes = missing > 0 and throttle_ms > 0
        if as_it_comes:
            bound.take_back(missing, bound.mark)
            bound.live.owe(min(throttle_ms, COMING_MS), now_ms)
            throttle_ms = 0
        elif throttle_ms:
            throttle_ms = self._pair.throttle(bound, meter, throttle_ms, now_ms)
        entry = None
        if not acks_0:  # with acks=0 no answer comes: the mute is all there is
            entry = expect(correlation_id, api, meter, now_ms, bound, throttle_ms)
            self._in_flight.append(entry)
        else:
            self._unanswered += 1  # no answer bounds how many of them come at once: a chunk has room for 10,000
            if self._unanswered >= _MAX_UNANSWERED:
                self._unanswered = 0
                self._wait_for_turn()
        if missing > 0:
            self._body = Body(meter, bound, None if as_it_comes else bound.mark, entry)
            self._body.count(-missing)
            if as_it_comes and bound.live.streamer is None:
                bound.live.streamer = self._body

    def _wait_for_turn(self) -> None:
        """Go on when others have had their turn."""
        self.reasons |= TURN
        self._rules.later(self._pair.next_requests)

    def _lower(self, prefix: RequestPrefix, chunk: bytes, position: int, field: int, head: Head, now_ms: int) -> bool:
        """Let a Fetch go, with max_bytes and min_bytes lowered to what its quota has left (KAFKA-9677); or wait."""
        bound, meter, api = prefix.bound, self._meter, prefix.api
        if bound.limit is not None and self._rules.throttling.enforces:
            lowers = has_fetch_limits(api.spec)
            min_bytes, max_bytes = _LIMITS.unpack_from(chunk, field) if lowers else (0, _INT32_MAX)
            if min_bytes > max_bytes or not self._waits.grant_whole(bound, max(max_bytes, 0), now_ms):
                if any(entry[ACTIONS] & CHARGE for entry in self._in_flight):
                    return self._wait(chunk, position, ANSWERING)  # one at a time, so that pipelining gains nothing
                if not self._waits.ask(What.FETCH, bound, meter, 0, now_ms):
                    return self._wait(chunk, position, IN_LINE)
                granted = self._waits.grant(bound, max(max_bytes, 0), now_ms)
                if lowers and (granted < max_bytes or granted < min_bytes):
                    self._edits += ((field, _LIMITS.pack(min(min_bytes, granted), granted)),)
        meter.fetch_requests += 1
        self._expect(api, head, bound, now_ms)
        return True

    # ------------------------------------------------------------------------------- a Fetch answered with nothing

    @property
    def answerable(self) -> bool:
        """What waits is a Fetch, and there to its end. A ShareFetch may acknowledge, and only the broker takes that."""
        held = self.splitter.release()
        self.splitter.keep(held)
        if len(held) < REQUEST_HEAD.size:
            return False
        size, key_version, _, _ = REQUEST_HEAD.unpack_from(held)
        return bool(len(held) >= 4 + size and self._served[key_version].spec.api_key == FETCH_KEY)

    def answer_empty(self, throttle_ms: int) -> bytes:
        """Take the Fetch that waits out of what is held, and return its answer without data."""
        held = self.splitter.release()
        size, key_version, correlation_id, _ = REQUEST_HEAD.unpack_from(held)
        frame = held[: 4 + size]
        if len(held) > len(frame):
            self.splitter.keep(held[len(frame) :])
        api = self._served[key_version]
        session = NO_SESSION
        if has_fetch_limits(api.spec):
            body = request_body_offset(api.spec, frame, 0, len(frame))
            session = fetch_session(api.spec, frame, fetch_limits_offset(api.spec, frame, body, len(frame)))
        answer = empty_answer(api.spec, correlation_id, throttle_ms, session)
        api.requests += 1
        meter = self._meter
        meter.fetch_requests += 1
        meter.other_requests += 1
        meter.other_bytes += len(frame)
        meter.bytes_out += len(answer)
        return answer

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

    def set_broker(self, broker_id: int) -> None:
        """Charge for the broker of that node id from now on (-1 while it is not known): quotas are per broker."""
        self._owner = (self._owner[0], broker_id)
        self._forget_prefixes()
        self._client_id = NOBODY

    @property
    def user(self) -> str:
        """Whom requests are charged to from now on."""
        return self._owner[0]

    def identify(self, user: str) -> None:
        """Charge the requests that follow to ``user``; those in flight stay with whom they were charged to."""
        self._owner = (user, self._owner[1])
        self._forget_prefixes()
        self._client_id = NOBODY

    @property
    def restricted(self) -> bool:
        """Who the client is has not been proved yet, where it has to be."""
        return self._served is not self._rules.served

    def restrict(self) -> None:
        """Take small requests only, until the broker has answered an ordinary one: then the client is known."""
        self._served = self._rules.served_before_authentication
        self.splitter.limit = self._rules.unauthenticated_request_limit
        self._leave_meter()

    def lift_restriction(self) -> None:
        """Take requests of any size that the limits allow."""
        self._served = self._rules.served
        self.splitter.limit = self._rules.request_limit
        self._forget_prefixes()

    def _forget_prefixes(self) -> None:
        self._produce_prefix.forget()
        self._fetch_prefix.forget()

    def leave(self) -> None:
        """Take the connection, which is over, off its meter; nothing is charged that never came."""
        if self._body is not None:
            self._body.leave(self.splitter.remaining)
            self._body = None
        self._leave_meter()
        self._produce_prefix.meter = self._fetch_prefix.meter = self._meters.nobody

    def _leave_meter(self) -> None:
        self._meter.connections -= 1
        self._meter = self._meters.nobody
        self._client_id = NOBODY
