"""From the client to the broker: requests found in the stream, gates asked, the client stopped when it must wait.

Of a request only the header is read. A chunk of whole frames that need nothing is forwarded in one write, as it
came. A client that must wait is stopped at a frame border: what it sent beyond stays in the splitter (bounded by
the chunk) and its socket is not read. Sans-I/O: bytes and time come in, bytes go out through a ``Wire``.
What single requests need is the business of ``gates``.
"""

from collections.abc import Callable
from typing import Final

from librt.strings import read_i16_be, read_i32_be

from protocol.frames import REQUEST_HEAD, FrameSplitter
from protocol.headers import MORE
from proxy.session.body import Body
from proxy.session.gates.fetch import answerable
from proxy.session.gates.requests import ANSWERED, HELD, REPLACED, RequestGates
from proxy.session.in_flight import HELD_MS, InFlight
from proxy.session.pair import Pair
from proxy.session.protected_topics import Guard
from proxy.session.request_prefix import NONE
from proxy.session.sender import AFTER_CORRELATION_ID
from proxy.session.serving import FETCH_KEY, PRODUCE_KEY, TIMED
from proxy.session.states import (
    ANSWERING,
    AT_BORDER,
    CROWDED,
    HELD_UP,
    MIDWAY,
    RAW_TOKENS,
    TURN,
    WITHIN,
    Event,
    begin,
    end,
)
from proxy.session.wires import Wire, dropped
from proxy.usage.own_time import DEAR_BYTES
from proxy.usage.request_times import may_wait
from quotas.engine import Bound

MAX_IN_FLIGHT: Final = 1024
"""A broker works on one request of a connection at a time, and the Java client sends five ahead."""

_MAX_AT_ONCE = 256
"""Requests that are read one by one before others have their turn: a millisecond. A chunk has room for 18,000."""

NOT_HELD: Final = -1
_HEAD_BYTES: Final = REQUEST_HEAD.size
_LEAST_BYTES: Final = _HEAD_BYTES - 4


class RequestSide:
    """What comes from one client, until it is with the broker."""

    __slots__ = (
        "_body",
        "_client",
        "_held_since_ms",
        "_in_flight",
        "_pair",
        "_paused",
        "_rules",
        "_sasl",
        "gates",
        "reasons",
        "splitter",
        "write",
    )

    def __init__(self, pair: Pair, in_flight: InFlight, splitter: FrameSplitter, gates: RequestGates) -> None:
        self._pair = pair
        self._rules = pair.rules
        self._in_flight = in_flight
        self.gates = gates
        self._sasl = pair.sasl
        self._body: Body | None = None
        """Of the request under way, while its end is still to come."""
        self.splitter = splitter
        self.reasons = 0
        self._held_since_ms = NOT_HELD
        """Since when the requests that the splitter holds have been held, if for a reason of ours."""
        self._client = pair.client
        self._paused = False
        self.write: Callable[[bytes], None] = dropped
        """Where forwarded bytes go: the broker connection's ``write`` while there is one."""

    def connected(self, broker: Wire, broker_id: int) -> None:
        """Forward to ``broker`` (node id, -1: not known yet) from now on."""
        self.write = broker.write
        if self._rules.protected_topics:
            self.write = Guard(self._rules.protected_topics, broker.write, lambda: self._sasl.raw).write
        self.gates.set_broker(broker_id)

    # ------------------------------------------------------------------------------------------ the hot path

    def feed(self, data: bytes, now_ms: int) -> None:
        """Take a chunk from the client. Raises ProtocolError where the client broke the protocol."""
        splitter = self.splitter
        remaining = splitter.remaining
        if remaining:
            count = len(data)
            if count <= remaining:  # inside a body: opaque
                splitter.remaining = remaining - count
                self.write(data)
                if self._body is not None:
                    self._came(self._body, count, now_ms, finished=count == remaining)
                if count == remaining and self.reasons:
                    self._pause()
                return
            if self._body is not None:
                self._came(self._body, remaining, now_ms, finished=True)
        times = self._rules.times
        if not times.on or not (weight := times.own.weigh(self._is_dear(data, remaining))):
            self._take(data, remaining, now_ms)
            return
        began_ns = times.own.thread_ns()
        self._take(data, remaining, now_ms)
        self.gates.times.spent(times.own.since_ns(began_ns), now_ms, weight)

    def _is_dear(self, data: bytes, position: int) -> bool:
        """Whether what begins there may take long. Of a Produce or a Fetch the header is read, whatever its length."""
        held_bytes = self.splitter.held_bytes
        if held_bytes + len(data) - position <= DEAR_BYTES:
            return False
        return bool(held_bytes) or (read_i32_be(data, position + 4) >> 16) not in (PRODUCE_KEY, FETCH_KEY)

    def _take(self, data: bytes, remaining: int, now_ms: int) -> None:
        """Take a chunk in which, behind what remained of the frame under way, others begin."""
        splitter = self.splitter
        if not remaining and self.reasons & AT_BORDER:
            splitter.keep(data)
            if self.reasons & HELD_UP:
                self._client.pause_reading()  # again: uvloop reads on when that was said inside connection_made
            if self.reasons & RAW_TOKENS:
                self._take_tokens(now_ms)
            self._note_hold(now_ms)
            return
        if not remaining and not splitter.held_bytes:
            position = self._walk(data, now_ms)
            if position >= len(data) and not self.reasons and len(self._in_flight) < MAX_IN_FLIGHT:
                splitter.remaining = position - len(data)
                self.write(data)
                return
            splitter.remaining = position
        self._take_frames(data, now_ms)
        self._note_hold(now_ms)

    def _note_hold(self, now_ms: int) -> None:
        """Take note since when requests have been held, if they are: what lacks bytes of the client's is not."""
        if not self.splitter.held_bytes or not self.reasons & HELD_UP:
            self._held_since_ms = NOT_HELD
        elif self._held_since_ms == NOT_HELD:
            self._held_since_ms = now_ms

    def _walk(self, data: bytes, now_ms: int) -> int:  # noqa: C901, PLR0912, PLR0915  in place, as was measured
        """Take the frames at the beginning of ``data`` that are the usual ones; return where the first other begins.

        Usual is what needs nothing, and a Produce that begins as the last one did. In place, because a call or a
        list for each frame is a tenth of a small request; ``_take_frames`` does the same for every frame
        there is. While requests are timed, those of a counter that nobody waits for are timed here.
        """
        end = len(data)
        gates = self.gates
        times = gates.times
        timed: Bound | None = None
        start_ns = 0
        rules = self._rules
        if rules.times.on and gates.served is rules.served:  # who is not known yet is not timed
            timed = times.open
            if timed is None or not rules.throttling.enforces:
                return 0
            start_ns = rules.times.clock_ns()
        produces = gates.produces
        caps = produces.caps
        prefix = produces.prefix
        number = prefix.number
        if number != NONE and produces.generation != rules.engine.generation:
            number = NONE
        limit = self.splitter.limit
        in_flight = self._in_flight
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
                    or (caps and produces.are_caps_shut)
                    or prefix.width > size
                    or data[position + AFTER_CORRELATION_ID : field] != prefix.beginning
                ):
                    break
                api = prefix.api
                acks: int = read_i16_be(data, field)
                on_answer = api.on_answer
                if timed is not None:
                    if not acks or not times.goes(timed, PRODUCE_KEY, size, acks == -1, start_ns, now_ms):
                        break
                    on_answer |= TIMED
                api.requests += 1
                meter.produce_requests += 1
                meter.produce_bytes += size
                throttle_ms = produces.bound.charge(size, now_ms)
                if caps:
                    throttle_ms = produces.charge_caps(size, throttle_ms, now_ms)
                if throttle_ms or not acks:
                    missing = position + 4 + size - end
                    self.splitter.remaining = max(missing, 0)  # a mute waits for the frame's end
                    produces.charged(api, correlation_id, throttle_ms, not acks, missing, now_ms)
                    self._body = produces.take_body(missing)
                    if timed is not None:
                        times.expect()
                        if self._body is not None:
                            self._body.timed = times.last
                    self._stop_for(produces.after())
                    if self.reasons & AT_BORDER:
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
                    api_key = key_version >> 16
                    if not times.goes(timed, api_key, size, may_wait(api_key), start_ns, now_ms):
                        break
                    on_answer |= TIMED
                usual.requests += 1
                meter.other_requests += 1
                meter.other_bytes += 4 + size
                in_flight.append((correlation_id, on_answer, usual, 0, 0, account, now_ms, 0))
            position += 4 + size
        if position > end and self._body is None:
            self._body = gates.body(position - end)
        return position

    def _stop_for(self, reasons: int) -> None:
        """Stop for what the last request has made a reason of."""
        if not reasons:
            return
        self.reasons = begin(Event.READ, self.reasons, reasons)
        if reasons & TURN:
            self._rules.later(self._pair.next_requests)

    def _came(self, body: Body, size: int, now_ms: int, *, finished: bool) -> None:
        """Take what has come of the request under way."""
        if finished:
            self._body = None
            if body.timed is not None:
                body.timed.start_ns = self._rules.times.clock_ns()
                body.timed.chunks = self._rules.times.chunks
        if not body.came(size, now_ms, finished=finished):
            self.stop(Event.READ, MIDWAY)

    def _take_frames(self, data: bytes, now_ms: int) -> None:
        """Take the frames of a chunk, from where the splitter says the first one begins; of very many some later."""
        splitter = self.splitter
        held_ms = 0 if self._held_since_ms == NOT_HELD else now_ms - self._held_since_ms
        chunk, position, heads = splitter.split(data, _MAX_AT_ONCE)
        self._look_for_crowd()
        if self.reasons & AT_BORDER and 0 < position < len(chunk):  # the frame under way is the last to go
            splitter.hold(chunk, position, 0)
            self._forward(chunk, 0, position)
            self._pause()
            return
        gates = self.gates
        start = 0
        stop = len(chunk)
        for head in heads:
            before = len(self._in_flight)
            outcome = gates.read(chunk, position, head, now_ms)
            self._was_held(held_ms, before)
            self._stop_for(gates.take_reasons())
            if outcome == HELD:
                stop = position
                break
            if outcome in (ANSWERED, REPLACED):
                self._forward(chunk, start, position)
                start = position + 4 + head[0]
                if outcome == REPLACED:
                    self.write(gates.mutations.replacement)
            position += 4 + head[0]
            if position > len(chunk):
                self._body = gates.body(position - len(chunk))
            self._look_for_crowd()
            if self.reasons & AT_BORDER:
                if position < stop:
                    splitter.hold(chunk, position, 0)
                    stop = position
                break
        self._forward(chunk, start, stop)
        if self.reasons & RAW_TOKENS:
            self._take_tokens(now_ms)
            return
        if splitter.held_bytes and splitter.ready and not self.reasons & AT_BORDER:
            self._stop_for(TURN)
        if self.reasons and not splitter.remaining:
            self._pause()

    def _was_held(self, held_ms: int, before: int) -> None:
        """Take note with the request that has gone, if one has and is to be answered, for how long it was held."""
        if held_ms and len(self._in_flight) > before:
            self._in_flight[-1] = (*self._in_flight[-1][:HELD_MS], held_ms)

    def _look_for_crowd(self) -> None:
        if len(self._in_flight) >= MAX_IN_FLIGHT:
            self.reasons = begin(Event.READ, self.reasons, CROWDED)

    def _forward(self, chunk: bytes, start: int, stop: int) -> None:
        if start >= stop:
            return
        chunk = self.gates.fetches.lowered(chunk)
        self.write(chunk if start == 0 and stop == len(chunk) else chunk[start:stop])

    # ------------------------------------------------------------------------------------------- authentication

    def read_tokens(self, raw: bool) -> None:
        """Read SASL tokens without headers from now on, or requests again."""
        if raw:
            self.reasons = begin(Event.TOKENS, self.reasons, RAW_TOKENS)
        else:
            self.reasons = end(Event.TOKENS_OVER, self.reasons, RAW_TOKENS)
            self._in_flight.clear()  # the last token of GSSAPI gets no answer of its own

    def _take_tokens(self, now_ms: int) -> None:
        """Pass raw tokens on, each after the answer to the one before where every one is answered."""
        if not self.splitter.ready:
            return
        login = self.gates.login
        held = self.splitter.release()
        needed = 0
        while held and self.reasons & AT_BORDER == RAW_TOKENS:
            size = login.token(held, self.gates.served, now_ms)
            if size <= 0:
                needed = login.needed(held) if size == MORE else 0
                break
            self.write(held[:size])
            held = held[size:]
            if self._sasl.raw_is_answered:
                self.stop(Event.READ, ANSWERING)
        if held:
            self.splitter.hold(held, 0, needed)
        if not self.reasons & AT_BORDER:
            self.feed(b"", now_ms)

    # ------------------------------------------------------------------------------- a Fetch answered with nothing

    @property
    def answerable(self) -> bool:
        """What waits is a Fetch, and there to its end."""
        held = self.splitter.release()
        self.splitter.keep(held)
        return answerable(self.gates.served, held)

    def answer_empty(self, throttle_ms: int) -> bytes:
        """Take the Fetch that waits out of what is held, and return its answer without data."""
        held = self.splitter.release()
        size: int = read_i32_be(held, 0)
        key_version: int = read_i32_be(held, 4)
        frame = held[: 4 + size]
        if len(held) > len(frame):
            self.splitter.keep(held[len(frame) :])
        else:
            self._held_since_ms = NOT_HELD
        return self.gates.fetches.answer_empty(self.gates.served[key_version], frame, throttle_ms)

    def leave(self) -> None:
        """Give back what the connection, which is over, has taken; nothing is charged that never came."""
        if self._body is not None:
            self._body.leave(self.splitter.remaining)
            self._body = None
        self.gates.leave()

    # -------------------------------------------------------------------------------------- stopping and going on

    def stop(self, event: Event, reasons: int) -> None:
        """Add ``reasons`` not to read; the stop takes hold at the next frame border."""
        self.reasons = begin(event, self.reasons, reasons)
        if not self.splitter.remaining or reasons & WITHIN:
            self._pause()

    def go_on(self, now_ms: int) -> None:
        """Feed what was held again, and read the client again, where no reason forbids it."""
        if self.splitter.held_bytes and not self.reasons & HELD_UP:
            self.feed(b"", now_ms)
        # Within a frame few reasons stop: the others wait for its end, so that end has to be read.
        holding = self.reasons & WITHIN if self.splitter.remaining else self.reasons & ~RAW_TOKENS
        if self._paused and not holding:
            self._paused = False
            self._client.resume_reading()

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            self._client.pause_reading()
