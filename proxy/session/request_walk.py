"""The requests that are most of all traffic, taken in place: those that need nothing, and a Produce like the last one.

One function, because a call or a list for each request is a tenth of a small one. ``RequestSide`` does the same for
every request there is, and what is not taken here goes its way.
"""

from typing import TYPE_CHECKING, Final

from librt.strings import read_i16_be, read_i32_be

from protocol.frames import REQUEST_HEAD
from proxy.session.in_flight import MAX_IN_FLIGHT
from proxy.session.request_prefix import NONE
from proxy.session.sender import AFTER_CORRELATION_ID
from proxy.session.serving import PRODUCE_KEY, TIMED
from proxy.session.states import AT_BORDER
from proxy.usage.request_times import ClientTimes

if TYPE_CHECKING:
    from proxy.session.request_side import RequestSide

_HEAD_BYTES: Final = REQUEST_HEAD.size
_LEAST_BYTES: Final = _HEAD_BYTES - 4


def walk(  # noqa: C901, PLR0912, PLR0915  in place, as was measured
    side: "RequestSide", data: bytes, now_ms: int
) -> int:
    """Take the requests at the beginning of ``data`` that are the usual ones; return where the first other begins.

    While requests are timed, those of a counter that nobody waits for are timed here.
    """
    end = len(data)
    gates = side.gates
    times = gates.times
    timed: ClientTimes | None = None
    start_ns = 0
    rules = side.rules
    if rules.times.on and gates.served is rules.served:  # who is not known yet is not timed
        timed = times.open()
        if timed is None or not rules.throttling.enforces:
            return 0
        start_ns = rules.times.clock_ns()
    produces = gates.produces
    is_capped = len(produces.caps) > 0
    prefix = produces.prefix
    number = prefix.number
    if number != NONE and produces.generation != rules.engine.generation:
        number = NONE
    limit = side.splitter.limit
    in_flight = side.in_flight
    served = gates.served
    account = gates.sender.account
    meter = account.meter
    client_id_bytes = gates.sender.client_id_bytes
    position = 0
    while end - position >= _HEAD_BYTES and len(in_flight) < MAX_IN_FLIGHT:
        size: int = read_i32_be(data, position)
        if not _LEAST_BYTES <= size <= limit:
            break
        key_version: int = read_i32_be(data, position + 4)
        correlation_id: int = read_i32_be(data, position + 8)
        if key_version == number:
            field = position + prefix.width
            if (
                field + 2 > end
                or produces.bound.shut
                or (is_capped and produces.are_caps_shut)
                or prefix.width > size
                or data[position + AFTER_CORRELATION_ID : field] != prefix.beginning
            ):
                break
            api = prefix.api
            acks: int = read_i16_be(data, field)
            on_answer = api.on_answer
            if timed is not None:
                if acks:
                    if not times.goes(rules.times, timed, PRODUCE_KEY, size, acks == -1, start_ns, now_ms):
                        break
                    on_answer |= TIMED
                elif rules.times.looks:
                    break
            api.requests += 1
            meter.produce_requests += 1
            meter.produce_bytes += size
            throttle_ms = produces.bound.charge(size, now_ms)
            if is_capped:
                throttle_ms = produces.charge_caps(size, throttle_ms, now_ms)
            if throttle_ms or not acks:
                missing = position + 4 + size - end
                side.splitter.remaining = max(missing, 0)  # a mute waits for the frame's end
                produces.charged(api, correlation_id, throttle_ms, not acks, missing, now_ms)
                side.body = produces.take_body(missing)
                if timed is not None:
                    if acks:
                        times.expect()
                    else:
                        times.exempt(PRODUCE_KEY, size)
                    if side.body is not None:
                        side.body.timed = times.last
                side.stop_for(produces.after())
                if side.reasons & AT_BORDER:
                    return position + 4 + size
            else:
                in_flight.append((correlation_id, on_answer, api, 0, 0, account, now_ms, 0))
        else:
            usual = served.get(key_version)
            if (
                usual is None
                or usual.on_request
                or data[position + AFTER_CORRELATION_ID : position + AFTER_CORRELATION_ID + len(client_id_bytes)]
                != client_id_bytes
            ):
                break
            on_answer = usual.on_answer
            if timed is not None:
                if not times.goes(rules.times, timed, key_version >> 16, size, False, start_ns, now_ms):
                    break
                on_answer |= TIMED
            usual.requests += 1
            meter.other_requests += 1
            meter.other_bytes += 4 + size
            in_flight.append((correlation_id, on_answer, usual, 0, 0, account, now_ms, 0))
        position += 4 + size
    if position > end and side.body is None:
        side.body = gates.body(position - end)
    return position
