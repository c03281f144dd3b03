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
from proxy.session.states import AT_BORDER

if TYPE_CHECKING:
    from proxy.session.request_side import RequestSide

_HEAD_BYTES: Final = REQUEST_HEAD.size
_LEAST_BYTES: Final = _HEAD_BYTES - 4


def walk(  # noqa: C901, PLR0912, PLR0915  in place, as was measured
    side: "RequestSide", data: bytes, now_ms: int
) -> int:
    """Take the requests at the beginning of ``data`` that are the usual ones; return where the first other begins."""
    end = len(data)
    gates = side.gates
    costs = gates.costs
    rules = side.rules
    is_charged = rules.costs.on and gates.served is rules.served  # who is not known yet is not charged
    if is_charged and not costs.is_open:
        return 0
    is_shut = False
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
    while end - position >= _HEAD_BYTES and len(in_flight) < MAX_IN_FLIGHT and not is_shut:
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
            if is_charged:
                cost = costs.cost_of_produce(api, data, field, position + 4 + size, size)
                if cost is None:
                    break
                is_shut = costs.charge(account, cost, now_ms)
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
                if side.body is not None:
                    side.body.rest_us = costs.take_rest_us()
                side.stop_for(produces.after())
                if side.reasons & AT_BORDER:
                    return position + 4 + size
            else:
                in_flight.append((correlation_id, api.on_answer, api, 0, 0, account, now_ms, 0))
        else:
            usual = served.get(key_version)
            if (
                usual is None
                or usual.on_request
                or data[position + AFTER_CORRELATION_ID : position + AFTER_CORRELATION_ID + len(client_id_bytes)]
                != client_id_bytes
            ):
                break
            if is_charged:
                api_key = key_version >> 16
                if rules.costs.of_answer_byte[api_key]:
                    break
                is_shut = costs.charge(account, (rules.costs.of_request[api_key], 0.0, False), now_ms)
            usual.requests += 1
            meter.other_requests += 1
            meter.other_bytes += 4 + size
            in_flight.append((correlation_id, usual.on_answer, usual, 0, 0, account, now_ms, 0))
        position += 4 + size
    if position > end and side.body is None:
        side.body = gates.body(position - end)
    return position
