"""The answers that are most of all traffic, taken in place as their requests are (``request_walk``)."""

from typing import TYPE_CHECKING, Final

from librt.strings import read_i32_be

from protocol.frames import RESPONSE_HEAD
from proxy.session.serving import REWRITE

if TYPE_CHECKING:
    from proxy.session.answer_side import AnswerSide

_HEAD_BYTES: Final = RESPONSE_HEAD.size
_LEAST_BYTES: Final = _HEAD_BYTES - 4


def walk(side: "AnswerSide", data: bytes, now_ms: int) -> int:
    """Take the answers at the beginning of ``data`` that need nothing; return where the first other begins."""
    end = len(data)
    costs = side.gates.costs if side.rules.costs.on else None
    limit = side.splitter.limit
    in_flight = side.in_flight
    latencies = side.latencies
    position = 0
    while end - position >= _HEAD_BYTES and in_flight:
        size: int = read_i32_be(data, position)
        due, actions, api, _, _, account, came_ms, held_ms = in_flight[0]
        if due != read_i32_be(data, position + 4) or not _LEAST_BYTES <= size <= limit:
            break
        if actions and (
            actions != REWRITE
            or api.plain is None
            or position + 4 + size > end
            or not api.plain.recognises(data, position, size)
        ):
            break
        if costs is not None and costs.is_shut(account):  # a throttle may be told
            break
        in_flight.pop(0)
        meter = account.meter
        meter.bytes_out += 4 + size
        meter.request_time_ms += now_ms - came_ms
        latencies.note(api.spec.api_key, now_ms - came_ms, held_ms)
        position += 4 + size
    return position
