"""What a client consumes: charged by the answer, so a Fetch is lowered to what its quota has left before it goes."""

from collections.abc import Mapping
from struct import Struct
from typing import TYPE_CHECKING, Final

from protocol.fetch import NO_SESSION, empty_answer, fetch_session
from protocol.frames import REQUEST_HEAD, Head
from protocol.headers import MORE, fetch_limits_offset, has_fetch_limits, request_body_offset
from proxy.session.in_flight import ACTIONS, InFlight, expect
from proxy.session.request_prefix import RequestPrefix
from proxy.session.sender import Sender
from proxy.session.serving import CHARGE, FETCH_KEY, Served
from proxy.session.states import ANSWERING, IN_LINE
from proxy.session.turn import What
from proxy.session.waits import Waits
from proxy.usage.accounts import Account
from quotas.kinds import QuotaKind

if TYPE_CHECKING:
    from proxy.session.pair import Pair

KIND: Final = QuotaKind.CONSUMER_BYTE_RATE
REQUEST_KIND: Final = QuotaKind.REQUEST_PERCENTAGE
WAITS: Final = -1

_LIMITS: Final = Struct(">ii")
_INT32_MAX: Final = 2**31 - 1


class FetchGate:
    """Lowers the Fetch requests of one connection, and charges their answers."""

    __slots__ = ("_edits", "_in_flight", "_pair", "_sender", "_waits", "prefix")

    def __init__(self, pair: "Pair", sender: Sender, in_flight: InFlight, waits: Waits) -> None:
        self._pair = pair
        self._sender = sender
        self._in_flight = in_flight
        self._waits = waits
        self.prefix = RequestPrefix()
        self._edits: tuple[tuple[int, bytes], ...] = ()
        """What is to stand where instead, in the chunk that is being read."""

    def forget(self) -> None:
        """Read the next request anew."""
        self.prefix.forget()

    def request(self, api: Served, chunk: bytes, position: int, head: Head, body: int, now_ms: int) -> int:
        """Let the request at ``position`` go, with max_bytes and min_bytes lowered to what its quota has left.

        KAFKA-9677: a broker does the same. Returns 0, or MORE if what that takes is not all there, or the reason why
        the client has to wait. Raises ProtocolError if the request ends inside what has to be read of it.
        """
        field = self.prefix.find(api, chunk, position, position + 4 + head[0], body)
        if field == MORE:
            return MORE
        account = self._sender.account
        bounds = account.limited(KIND)
        if bounds and self._pair.rules.throttling.enforces:
            lowers = has_fetch_limits(api.spec)
            min_bytes, max_bytes = _LIMITS.unpack_from(chunk, field) if lowers else (0, _INT32_MAX)
            if min_bytes > max_bytes or not self._waits.grant_whole(bounds, max(max_bytes, 0), now_ms):
                if any(entry[ACTIONS] & CHARGE for entry in self._in_flight):
                    return ANSWERING  # one at a time, so that pipelining gains nothing
                if not self._waits.ask_all(What.FETCH, account, bounds, 0, now_ms):
                    return IN_LINE
                granted = self._waits.grant(bounds, max(max_bytes, 0), now_ms)
                if lowers and (granted < max_bytes or granted < min_bytes):
                    self._edits += ((field, _LIMITS.pack(min(min_bytes, granted), granted)),)
        meter = account.meter
        api.requests += 1
        meter.fetch_requests += 1
        meter.other_requests += 1
        meter.other_bytes += 4 + head[0]
        self._in_flight.append(expect(head[2], api, account, now_ms))
        return 0

    def lowered(self, chunk: bytes) -> bytes:
        """Return the chunk that has been read, with its requests as they may go."""
        if not self._edits:
            return chunk
        edited = bytearray(chunk)
        for offset, replacement in self._edits:
            edited[offset : offset + len(replacement)] = replacement
        self._edits = ()
        return bytes(edited)

    # --------------------------------------------------------------------------------------------------- answers

    def answer(self, account: Account, size: int, request_ms: int, now_ms: int) -> int:
        """Charge an answer of so many bytes; returns the throttle time that it is to tell, or WAITS for its turn.

        ``request_ms`` is the throttle time of the request percentage: of both the longer one is given, and told, and
        of two that are equal that one (KafkaApis).
        """
        throttling = self._pair.rules.throttling
        bounds = account.limited(KIND) if throttling.enforces else ()
        if bounds and not self._waits.may_answer(account, bounds, size, now_ms):
            return WAITS
        account.meter.fetch_bytes += size
        bound = account.bound(KIND)
        throttle_ms = bound.charge(size, now_ms)
        shadowed = bound.shadow_limit is not None
        for cap in account.caps(KIND):
            throttle_ms = max(cap.charge(size, now_ms), throttle_ms)
            shadowed = shadowed or cap.shadow_limit is not None
        if shadowed or not throttling.enforces:
            throttling.imagine(account, KIND, size, now_ms, id(self))
        if not throttling.enforces:
            return 0
        if throttle_ms > request_ms:
            return self._pair.throttle(account, KIND, throttle_ms, now_ms)
        if throttle_ms:
            for each in bounds:
                each.live.owe(each.check(now_ms), now_ms)
        return self._pair.throttle(account, REQUEST_KIND, request_ms, now_ms) if request_ms else 0

    # ------------------------------------------------------------------------------- a Fetch answered with nothing

    def answer_empty(self, api: Served, frame: bytes, throttle_ms: int) -> bytes:
        """Return the answer without data to a Fetch that waits."""
        _, _, correlation_id, _ = REQUEST_HEAD.unpack_from(frame)
        session = NO_SESSION
        if has_fetch_limits(api.spec):
            body = request_body_offset(api.spec, frame, 0, len(frame))
            session = fetch_session(api.spec, frame, fetch_limits_offset(api.spec, frame, body, len(frame)))
        answer = empty_answer(api.spec, correlation_id, throttle_ms, session)
        api.requests += 1
        meter = self._sender.account.meter
        meter.fetch_requests += 1
        meter.other_requests += 1
        meter.other_bytes += len(frame)
        meter.bytes_out += len(answer)
        return answer


def answerable(served: Mapping[int, Served], held: bytes) -> bool:
    """Whether ``held`` begins with a whole Fetch. A ShareFetch may acknowledge, and only the broker takes that."""
    if len(held) < REQUEST_HEAD.size:
        return False
    size, key_version, _, _ = REQUEST_HEAD.unpack_from(held)
    return bool(len(held) >= 4 + size and served[key_version].spec.api_key == FETCH_KEY)
