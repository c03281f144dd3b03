"""What is due on an answer before it goes: to be charged, held, told, read, or changed.

Where its first bytes are enough (a Fetch is charged and told, and its records stream on), the rest goes as it comes; of
all others the frame is gathered.
"""

from typing import TYPE_CHECKING, Final

from protocol.compile import SLICE_BYTES
from protocol.headers import MORE
from protocol.locator import throttle_position
from protocol.table import WALK
from proxy.session.changes import INT, too_long
from proxy.session.gates.fetch import WAITS
from proxy.session.in_flight import CAME_MS, HELD_MS, SEEN, Entry
from proxy.session.serving import AUTHENTICATED, CHARGE, GATHERED, PROVES, SETTLE, TELL
from proxy.session.states import HELD_BACK, OVERSIZED, THROTTLED, WALKED, Event

if TYPE_CHECKING:
    from proxy.session.answer_side import AnswerSide

HELD: Final = -1
"""For where the bytes to forward begin: the answer has been kept."""
_FIXED_OFFSET_BYTES: Final = 64  # size, correlation id, header tags and a throttle_time_ms at a fixed offset


def act_on(side: "AnswerSide", entry: Entry, chunk: bytes, start: int, position: int, size: int, now_ms: int) -> int:
    """Do what ``entry`` needs on its answer, which begins at ``position``.

    Returns where the bytes still to forward begin, or HELD when the answer was held: because what is needed of
    it is not all there, or until its throttle time is over.
    """
    correlation_id, actions, api, throttle_ms, until_ms, account, _, held_ms = entry
    spec = api.spec
    gathered = actions & GATHERED or (actions & TELL and spec.throttle_offset == WALK)
    wanted = 4 + size if gathered else min(4 + size, _FIXED_OFFSET_BYTES)
    if gathered and size > SLICE_BYTES:
        gathered = wanted = side.changes.needed(actions, spec, size)
    if len(chunk) - position < wanted:
        return _hold(side, entry, chunk, start, position, wanted)
    if actions & CHARGE:
        # The correlation id and the body, without the tag section of a v1 header: what Kafka measures.
        charged = size - spec.response_header_version
        throttle_ms = side.gates.fetches.answer(account, charged, throttle_ms, now_ms)
        if throttle_ms == WAITS:
            side.stop(Event.GOT, OVERSIZED)
            return _hold(side, entry, chunk, start, position, 0, now_ms)
        if throttle_ms:
            actions = (actions | TELL) & ~CHARGE
            until_ms = now_ms + throttle_ms
            entry = (correlation_id, actions, api, throttle_ms, until_ms, account, entry[CAME_MS], held_ms)
    if actions & TELL and api.delayed and now_ms < until_ms and side.requests.reasons & THROTTLED:
        side.stop(Event.GOT, HELD_BACK)
        return _hold(side, entry, chunk, start, position, 0, now_ms)
    if actions & PROVES:
        _write(side, chunk, start, position)
        side.gates.answered(chunk[position : position + 4 + size])
        return position + 4 + size
    if gathered:
        entry = (correlation_id, actions & ~CHARGE, api, throttle_ms, until_ms, account, entry[CAME_MS], held_ms)
        return _change(side, entry, chunk, start, position, size, now_ms)
    if actions & TELL and spec.throttle_offset >= 0:
        offset = throttle_position(spec, chunk, position, position + 4 + size)
        if offset == MORE:
            return _hold(side, entry, chunk, start, position, 4 + size)  # header tags of a size never seen yet
        _write(side, chunk, start, offset)
        side.write(INT.pack(max(throttle_ms, INT.unpack_from(chunk, offset)[0])))
        return offset + INT.size
    return start


def _change(side: "AnswerSide", entry: Entry, chunk: bytes, start: int, position: int, size: int, now_ms: int) -> int:
    """Forward an answer that had to be gathered, changed; returns as ``act_on`` does."""
    _, actions, api, throttle_ms, *_ = entry
    if actions & SETTLE:
        return _settle(side, entry, chunk, start, position, size, now_ms)
    if side.changes.under_way is not None or (size > SLICE_BYTES and not actions & AUTHENTICATED):
        return _rewrite(side, entry, chunk, start, position, size, now_ms)
    end = position + 4 + size
    frame = chunk[position:end]
    changed = side.changes.of_whole(frame, actions, api, throttle_ms, now_ms)
    if changed is None:
        return _rewrite(side, entry, chunk, start, position, size, now_ms)
    if changed is frame:
        return start
    _write(side, chunk, start, position)
    side.write(changed)
    return end


def _settle(side: "AnswerSide", entry: Entry, chunk: bytes, start: int, position: int, size: int, now_ms: int) -> int:
    """Settle what was charged, a long answer in turn, while the broker is not read. Returns as ``act_on`` does."""
    _, _, api, throttle_ms, *_ = entry
    unsettled = side.gates.mutations.unsettled
    settling = unsettled.answer(api.spec, chunk, position, size, throttle_ms)
    while not settling.is_done and not settling.advance():
        if size > SLICE_BYTES:
            side.changes.under_way = settling
            side.stop(Event.GOT, WALKED)
            side.rules.later(side.pair.next_slice)
            return _hold(side, entry, chunk, start, position, 0, now_ms)
    side.changes.under_way = None
    unsettled.passed()
    if not settling.taken:
        return start
    _write(side, chunk, start, position)
    side.write(settling.written)
    return position + settling.taken


def _rewrite(side: "AnswerSide", entry: Entry, chunk: bytes, start: int, position: int, size: int, now_ms: int) -> int:
    """Change a long answer; what cannot be done at once is done in turn, while the broker is not read.

    Returns as ``act_on`` does. The rest of an answer that names brokers in front is forwarded as it comes.
    """
    _, actions, api, throttle_ms, *_ = entry
    told_ms = throttle_ms if actions & TELL else None
    rewriting = side.changes.of_long(chunk, position, api.spec, size, told_ms)
    if rewriting is None:
        side.stop(Event.GOT, WALKED)
        side.rules.later(side.pair.next_slice)
        return _hold(side, entry, chunk, start, position, 0, now_ms)
    if rewriting.needs_more:
        there = len(chunk) - position
        if there > side.rules.gathered_limit:
            raise too_long(api.spec, there, side.rules.gathered_limit)
        return _hold(side, entry, chunk, start, position, min(4 + size, 2 * there))
    _write(side, chunk, start, position)
    side.write(rewriting.written())
    return position + rewriting.end


def _hold(
    side: "AnswerSide", entry: Entry, chunk: bytes, start: int, position: int, wanted: int, since_ms: int | None = None
) -> int:
    """Keep an answer: until more of it has come, or since that moment for a reason of ours, which goes on."""
    came_ms = entry[CAME_MS]
    if came_ms >= SEEN:
        came_ms = SEEN if since_ms is None else min(-since_ms, SEEN - 1)
    side.in_flight.insert(0, (*entry[:CAME_MS], came_ms, entry[HELD_MS]))
    _write(side, chunk, start, position)
    side.splitter.hold(chunk, position, wanted)
    return HELD


def _write(side: "AnswerSide", chunk: bytes, start: int, stop: int) -> None:
    if start < stop:
        side.write(chunk[start:stop])
