"""From the broker to the client: answers matched to requests, fetches charged, throttles told, addresses rewritten.

Of an answer only the correlation id is read, unless something is due (``serving``). Then either its first bytes
are enough (a Fetch is charged and told, and its records stream on), or the frame is gathered, changed and sent.
Sans-I/O: bytes and time come in, bytes go out through a ``Wire``.
"""

from collections.abc import Callable
from typing import Final

from librt.strings import read_i32_be

from protocol.compile import SLICE_BYTES
from protocol.errors import Cause, ProtocolError
from protocol.frames import RESPONSE_HEAD, FrameSplitter
from protocol.headers import MORE
from protocol.locator import throttle_position
from protocol.sasl import raw_token_end
from protocol.table import WALK
from proxy.session.changes import INT, Advertise, Changes, too_long
from proxy.session.gates.fetch import WAITS
from proxy.session.gates.requests import RequestGates
from proxy.session.in_flight import ACCOUNT, ACTIONS, API, CAME_MS, CORRELATION_ID, HELD_MS, SEEN, Entry, InFlight
from proxy.session.pair import Pair
from proxy.session.request_side import RequestSide
from proxy.session.serving import AUTHENTICATED, CHARGE, NEGOTIATE, PROVES, REWRITE, SETTLE, TELL, TIMED
from proxy.session.states import (
    ANSWER_BORDER,
    HELD_BACK,
    OVERSIZED,
    RAW_TOKENS,
    THROTTLED,
    UNTIL_ANSWERED,
    WALKED,
    Event,
    begin,
    end,
)
from proxy.session.wires import Wire
from proxy.usage.own_time import DEAR_BYTES

HELD: Final = -1
"""For where the bytes to forward begin: the answer has been kept."""
_FIXED_OFFSET_BYTES: Final = 64  # size, correlation id, header tags and a throttle_time_ms at a fixed offset
_HEAD_BYTES: Final = RESPONSE_HEAD.size
_LEAST_BYTES: Final = _HEAD_BYTES - 4
UNKNOWN: Final = -1
"""The node id of a broker that is not known yet."""
_GATHERED: Final = REWRITE | NEGOTIATE | AUTHENTICATED | SETTLE


class AnswerSide:
    """What comes from one broker connection, until it is with the client."""

    __slots__ = (
        "_broker",
        "_changes",
        "_gates",
        "_in_flight",
        "_latencies",
        "_pair",
        "_requests",
        "_rules",
        "_sasl",
        "reasons",
        "splitter",
        "write",
    )

    def __init__(
        self, pair: Pair, in_flight: InFlight, gates: RequestGates, requests: RequestSide, advertise: Advertise
    ) -> None:
        self._pair = pair
        self._rules = pair.rules
        self._in_flight = in_flight
        self._requests = requests
        self._sasl = pair.sasl
        self._changes = Changes(pair, advertise)
        self._gates = gates
        self._broker: Wire | None = None
        self._latencies = pair.rules.latencies.of(UNKNOWN)
        self.reasons = 0
        self.splitter = FrameSplitter(RESPONSE_HEAD, self._rules.response_limit)
        self.write: Callable[[bytes], None] = pair.client.write

    # ------------------------------------------------------------------------------------------ the hot path

    def feed(self, data: bytes, now_ms: int) -> None:
        """Take a chunk from the broker. Raises ProtocolError where the broker broke the protocol."""
        splitter = self.splitter
        remaining = splitter.remaining
        if remaining:
            count = len(data)
            if count <= remaining:  # inside a body: opaque
                splitter.remaining = remaining - count
                self.write(data)
                if count == remaining and self._requests.reasons & UNTIL_ANSWERED:
                    self._pair.answered(now_ms)
                return
        times = self._rules.times
        if not times.on or not (weight := times.own.weigh(self._is_dear(data, remaining))):
            self._take(data, remaining, now_ms)
            return
        began_ns = times.own.thread_ns()
        self._take(data, remaining, now_ms)
        self._gates.times.spent(times.own.since_ns(began_ns), now_ms, weight)

    def _is_dear(self, data: bytes, position: int) -> bool:
        """Whether the answer that begins there, or what is held of one, may take long: it is gathered and changed."""
        if self.splitter.held_bytes + len(data) - position <= DEAR_BYTES:
            return False
        return bool(self._in_flight) and bool(self._in_flight[0][ACTIONS] & _GATHERED)

    def _take(self, data: bytes, remaining: int, now_ms: int) -> None:
        """Take a chunk in which, behind what remained of the answer under way, others begin."""
        splitter = self.splitter
        if remaining:
            self._take_answers(data, now_ms)
        elif self.reasons & ANSWER_BORDER:
            splitter.keep(data)
            if self.reasons & RAW_TOKENS:
                self._take_tokens(now_ms)
        elif splitter.held_bytes:
            self._take_answers(data, now_ms)
        else:
            position = self._walk(data, now_ms)
            if position == len(data):
                self.write(data)
                if self._requests.reasons & UNTIL_ANSWERED:
                    self._pair.answered(now_ms)
                return
            splitter.remaining = position
            self._take_answers(data, now_ms)

    def _walk(self, data: bytes, now_ms: int) -> int:
        """Take the answers at the beginning of ``data`` that need nothing; return where the first other begins.

        In place, as on the request side; ``_take_answers`` does the same for every answer there is. An answer that is
        timed is charged here, and leaves this way if it has a throttle to tell.
        """
        end = len(data)
        came_ns = 0
        limit = self.splitter.limit
        in_flight = self._in_flight
        latencies = self._latencies
        position = 0
        while end - position >= _HEAD_BYTES and in_flight:
            size: int = read_i32_be(data, position)
            due, actions, api, _, _, account, came_ms, held_ms = in_flight[0]
            if due != read_i32_be(data, position + 4) or not _LEAST_BYTES <= size <= limit:
                break
            timed = actions & TIMED
            if timed:
                actions -= TIMED
            if actions and (
                actions != REWRITE
                or api.plain is None
                or position + 4 + size > end
                or not api.plain.recognises(data, position, size)
            ):
                break
            if timed:
                times = self._rules.times
                came_ns = came_ns or times.clock_ns()
                of_gates = self._gates.times
                if not of_gates.settles(times, account, api.spec.api_key, size, came_ns, now_ms):
                    entry = in_flight[0] = of_gates.answered(in_flight[0], size, now_ms)
                    if entry[ACTIONS] & TELL:
                        break
            in_flight.pop(0)
            meter = account.meter
            meter.bytes_out += 4 + size
            meter.request_time_ms += now_ms - came_ms
            latencies.note(api.spec.api_key, now_ms - came_ms, held_ms)
            position += 4 + size
        return position

    def _take_answers(self, data: bytes, now_ms: int) -> None:
        """Take every answer of a chunk, from where the splitter says the first one begins."""
        chunk, position, heads = self.splitter.split(data)
        start = held_ms = 0
        in_flight = self._in_flight
        for size, correlation_id in heads:
            if not in_flight:
                raise ProtocolError(Cause.UNEXPECTED_RESPONSE, f"response {correlation_id} with no request in flight")
            entry = in_flight.pop(0)
            if entry[CORRELATION_ID] != correlation_id:
                raise ProtocolError(
                    Cause.CORRELATION_MISMATCH,
                    f"response {correlation_id} while {entry[CORRELATION_ID]} ({entry[API].spec.name}) is expected",
                )
            if entry[CAME_MS] > SEEN:
                meter = entry[ACCOUNT].meter
                meter.bytes_out += 4 + size
                meter.request_time_ms += now_ms - entry[CAME_MS]
                self._latencies.came(entry[API].spec.api_key, max(now_ms - held_ms - entry[CAME_MS], 0))
                if entry[ACTIONS] & TIMED:
                    entry = self._gates.times.answered(entry, size, now_ms)
            elif entry[CAME_MS] < SEEN:
                held_ms = now_ms + entry[CAME_MS]  # as long as it, what came behind it was held
            if entry[ACTIONS]:
                start = self._act_on(entry, chunk, start, position, size, now_ms)
                if start == HELD:
                    return
            self._latencies.went(entry[API].spec.api_key, entry[HELD_MS] + held_ms)
            position += 4 + size
        if start < len(chunk):
            self.write(chunk[start:] if start else chunk)
        if self._requests.reasons & UNTIL_ANSWERED:
            self._pair.answered(now_ms)

    @property
    def idle(self) -> bool:
        """Everything in flight has been answered, to the last byte."""
        return not self._in_flight and not self.splitter.remaining and not self.splitter.held_bytes

    # ---------------------------------------------------------------------------- answers that need more than that

    def _act_on(self, entry: Entry, chunk: bytes, start: int, position: int, size: int, now_ms: int) -> int:
        """Do what ``entry`` needs on its answer, which begins at ``position``.

        Returns where the bytes still to forward begin, or HELD when the answer was held: because what is needed of
        it is not all there, or until its throttle time is over.
        """
        correlation_id, actions, api, throttle_ms, until_ms, account, _, held_ms = entry
        spec = api.spec
        gathered = actions & _GATHERED or (actions & TELL and spec.throttle_offset == WALK)
        wanted = 4 + size if gathered else min(4 + size, _FIXED_OFFSET_BYTES)
        if gathered and size > SLICE_BYTES:
            gathered = wanted = self._changes.needed(actions, spec, size)
        if len(chunk) - position < wanted:
            return self._hold(entry, chunk, start, position, wanted)
        if actions & CHARGE:
            # The correlation id and the body, without the tag section of a v1 header: what Kafka measures.
            charged = size - spec.response_header_version
            throttle_ms = self._gates.fetches.answer(account, charged, throttle_ms, now_ms)
            if throttle_ms == WAITS:
                self.stop(Event.GOT, OVERSIZED)
                return self._hold(entry, chunk, start, position, 0, now_ms)
            if throttle_ms:
                actions = (actions | TELL) & ~CHARGE
                until_ms = now_ms + throttle_ms
                entry = (correlation_id, actions, api, throttle_ms, until_ms, account, entry[CAME_MS], held_ms)
        if actions & TELL and api.delayed and now_ms < until_ms and self._requests.reasons & THROTTLED:
            self.stop(Event.GOT, HELD_BACK)
            return self._hold(entry, chunk, start, position, 0, now_ms)
        if actions & PROVES and self._sasl.proven():
            self._gates.lift_restriction()
        if gathered:
            entry = (correlation_id, actions & ~CHARGE, api, throttle_ms, until_ms, account, entry[CAME_MS], held_ms)
            return self._change(entry, chunk, start, position, size, now_ms)
        if actions & TELL and spec.throttle_offset >= 0:
            offset = throttle_position(spec, chunk, position, position + 4 + size)
            if offset == MORE:
                return self._hold(entry, chunk, start, position, 4 + size)  # header tags of a size never seen yet
            self._write(chunk, start, offset)
            self.write(INT.pack(max(throttle_ms, INT.unpack_from(chunk, offset)[0])))
            return offset + INT.size
        return start

    def _change(self, entry: Entry, chunk: bytes, start: int, position: int, size: int, now_ms: int) -> int:
        """Forward an answer that had to be gathered, changed; returns as ``_act_on`` does."""
        _, actions, api, throttle_ms, *_ = entry
        if actions & SETTLE:
            unsettled = self._gates.mutations.unsettled
            begun, taken = unsettled.answer(api.spec, chunk, position, size, throttle_ms, now_ms)
            if not taken:
                return start
            self._write(chunk, start, position)
            self.write(begun)
            return position + taken
        if size > SLICE_BYTES and not actions & AUTHENTICATED:
            return self._rewrite(entry, chunk, start, position, size, now_ms)
        end = position + 4 + size
        frame = chunk[position:end]
        changed = self._changes.of_whole(frame, actions, api, throttle_ms, now_ms)
        if changed is frame:
            return start
        self._write(chunk, start, position)
        self.write(changed)
        return end

    def _rewrite(self, entry: Entry, chunk: bytes, start: int, position: int, size: int, now_ms: int) -> int:
        """Change a long answer; what cannot be done at once is done in turn, while the broker is not read.

        Returns as ``_act_on`` does. The rest of an answer that names brokers in front is forwarded as it comes.
        """
        _, actions, api, throttle_ms, *_ = entry
        told_ms = throttle_ms if actions & TELL else None
        rewriting = self._changes.of_long(chunk, position, api.spec, size, told_ms)
        if rewriting is None:
            self.stop(Event.GOT, WALKED)
            self._rules.later(self._pair.next_slice)
            return self._hold(entry, chunk, start, position, 0, now_ms)
        if rewriting.needs_more:
            there = len(chunk) - position
            if there > self._rules.gathered_limit:
                raise too_long(api.spec, there, self._rules.gathered_limit)
            return self._hold(entry, chunk, start, position, min(4 + size, 2 * there))
        self._write(chunk, start, position)
        self.write(rewriting.written())
        return position + rewriting.end

    def walk_on(self, now_ms: int) -> None:
        """Do a further slice of the long answer that is under way; behind the last one go on with what came since."""
        rewriting = self._changes.under_way
        if rewriting is None:
            return
        own = self._rules.times.own
        began_ns = own.thread_ns() if self._rules.times.on else 0
        is_done = rewriting.advance()
        if began_ns:
            self._gates.times.spent(own.since_ns(began_ns), now_ms)
        if not is_done:
            self._rules.later(self._pair.next_slice)
            return
        self.reasons = end(Event.NEXT, self.reasons, WALKED)
        self.feed(b"", now_ms)
        self._resume()

    def _hold(
        self, entry: Entry, chunk: bytes, start: int, position: int, wanted: int, since_ms: int | None = None
    ) -> int:
        """Keep an answer: until more of it has come, or since that moment for a reason of ours, which goes on."""
        came_ms = entry[CAME_MS]
        if came_ms >= SEEN:
            came_ms = SEEN if since_ms is None else min(-since_ms, SEEN - 1)
        self._in_flight.insert(0, (*entry[:CAME_MS], came_ms, entry[HELD_MS]))
        self._write(chunk, start, position)
        self.splitter.hold(chunk, position, wanted)
        return HELD

    def _write(self, chunk: bytes, start: int, stop: int) -> None:
        if start < stop:
            self.write(chunk[start:stop])

    # -------------------------------------------------------------------------------------- stopping and going on

    def connected(self, broker: Wire, broker_id: int) -> None:
        """Take answers from ``broker`` (node id, -1: not known yet)."""
        self._broker = broker
        self.set_broker(broker_id)

    def set_broker(self, broker_id: int) -> None:
        """Take that node id for the broker's."""
        self._latencies = self._rules.latencies.of(broker_id)

    def read_tokens(self, raw: bool) -> None:
        """Read SASL tokens without headers from now on, or answers again."""
        if raw:
            self.reasons = begin(Event.TOKENS, self.reasons, RAW_TOKENS)
        else:
            self.reasons = end(Event.TOKENS_OVER, self.reasons, RAW_TOKENS)

    def _take_tokens(self, now_ms: int) -> None:
        """Pass raw tokens on; the one that ends the exchange is the last."""
        if not self.splitter.ready:
            return
        held = self.splitter.release()
        wanted = 0
        while held and self.reasons & ANSWER_BORDER == RAW_TOKENS:
            wanted = raw_token_end(held, self._rules.unauthenticated_request_limit)
            if wanted > len(held):
                break
            if not self._in_flight:
                raise ProtocolError(Cause.UNEXPECTED_RESPONSE, "raw SASL token with none in flight")
            self._in_flight.pop(0)[ACCOUNT].meter.bytes_out += wanted
            self._sasl.raw_answer(held[4:wanted], now_ms)
            self.write(held[:wanted])
            held = held[wanted:]
            wanted = 0
        if held:
            self.splitter.hold(held, 0, wanted)
        if not self.reasons & ANSWER_BORDER and held:
            self.feed(b"", now_ms)
        elif self._requests.reasons & UNTIL_ANSWERED:
            self._pair.answered(now_ms)

    def release(self, now_ms: int) -> None:
        """Go on with an answer that was held back for its throttle time."""
        self._release(Event.THROTTLE_OVER, HELD_BACK, now_ms)

    def turn(self, now_ms: int) -> None:
        """Go on with an answer that waited for its turn."""
        self._release(Event.ADMITTED, OVERSIZED, now_ms)

    def _release(self, event: Event, reason: int, now_ms: int) -> None:
        if self.reasons & reason:
            self.reasons = end(event, self.reasons, reason)
            self._gates.times.lose_sight()
            self.feed(b"", now_ms)
            self._resume()

    def stop(self, event: Event, reason: int) -> None:
        """Do not read the broker while ``reason`` holds."""
        if not self.reasons & ~RAW_TOKENS and self._broker is not None:
            self._broker.pause_reading()
        self.reasons = begin(event, self.reasons, reason)

    def go(self, event: Event, reason: int) -> None:
        """Take ``reason`` away; the broker is read again when none is left."""
        self.reasons = end(event, self.reasons, reason)
        self._resume()

    def _resume(self) -> None:
        self._gates.times.lose_sight()
        if not self.reasons & ~RAW_TOKENS and self._broker is not None:
            self._broker.resume_reading()
