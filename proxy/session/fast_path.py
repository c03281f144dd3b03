"""The fast path: the requests that are most of all traffic, taken in place.

These are requests that need nothing, and a Produce like the last one. It is one function, because a call or a list for
each request is a tenth of a small one. ``RequestStream`` does the same for every request there is, and takes those that
are not taken here. ``ResponseStream._walk`` is the fast path of their answers.
"""

from typing import TYPE_CHECKING, Final

from librt.strings import read_i16_be, read_i32_be

from protocol.frames import REQUEST_HEAD
from proxy.session.exchange import AFTER_CORRELATION_ID, MAX_IN_FLIGHT, NONE, Body, Exchange
from proxy.session.flow import AT_BORDER
from proxy.session.policies.produce import KIND as PRODUCE
from proxy.session.policies.request_time import KIND as REQUEST_TIME
from proxy.session.policies.request_time import Cost

if TYPE_CHECKING:
    from proxy.session.request_stream import RequestStream

_HEAD_BYTES: Final = REQUEST_HEAD.size
_LEAST_BYTES: Final = _HEAD_BYTES - 4


def walk_requests(  # noqa: C901, PLR0912, PLR0915  in place, as was measured
    side: "RequestStream", data: bytes, now_ms: int
) -> int:
    """Take the requests at the beginning of ``data`` that are the usual ones; return where the first other begins."""
    end = len(data)
    session = side.session
    policies = side.policies
    costs = policies.costs
    worker = session.worker
    is_charged = worker.costs.on and policies.served is worker.served  # who is not known yet is not charged
    identity = session.identity
    account = identity.account
    enforces = worker.throttling.enforces
    if session.abandoned or (is_charged and not (enforces and account.open(REQUEST_TIME))):
        return 0
    is_shut = False
    rest_us = 0.0
    produces = policies.produces
    prefix = produces.prefix
    number = prefix.number
    counters = account.open(PRODUCE) if enforces and number != NONE else ()
    if not counters:
        number = NONE
    limit = side.splitter.limit
    in_flight = session.in_flight
    served = policies.served
    meter = account.meter
    client_id_bytes = identity.client_id_bytes
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
                rest_us = cost.rest_us
            api.requests += 1
            meter.produce_requests += 1
            meter.produce_bytes += size
            throttle_ms = 0
            for counter in counters:
                throttle_ms = max(counter.charge(size, now_ms), throttle_ms)
            missing = position + 4 + size - end
            if throttle_ms or not acks or missing > 0:
                side.splitter.remaining = max(missing, 0)  # a mute waits for the frame's end
                side.take(produces.charged(api, correlation_id, throttle_ms, not acks, missing, now_ms), rest_us)
                if throttle_ms or side.reasons & AT_BORDER:
                    return position + 4 + size
            else:
                in_flight.append(Exchange(correlation_id, api, account, now_ms))
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
                if worker.costs.of_answer_byte[api_key]:
                    break
                is_shut = costs.charge(account, Cost(worker.costs.of_request[api_key]), now_ms)
            usual.requests += 1
            meter.other_requests += 1
            meter.other_bytes += 4 + size
            in_flight.append(Exchange(correlation_id, usual, account, now_ms))
        position += 4 + size
    if position > end and side.body is None:
        side.body = Body(account)
        side.body.count(end - position)
    return position
