"""From the client to the broker: requests found in the stream, gates asked, the client stopped when it must wait.

Of a request only the header is read. A chunk of whole frames that need nothing is forwarded in one write, as it
came. A client that must wait is stopped at a frame border: what it sent beyond stays in the splitter (bounded by
the chunk) and its socket is not read. Sans-I/O: bytes and time come in, bytes go out through a ``Wire``.
What single requests need is the business of ``gates``.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from librt.strings import read_i32_be

from protocol.errors import Cause, ProtocolError
from protocol.frames import FrameSplitter
from proxy.session.body import Body
from proxy.session.gates.fetch import answerable
from proxy.session.gates.requests import ANSWERED, HELD, REPLACED, RequestGates
from proxy.session.gates.unanswered import without_answered
from proxy.session.gathering import FREE_BYTES
from proxy.session.in_flight import HELD_MS, MAX_IN_FLIGHT, InFlight
from proxy.session.protected_topics import Guard
from proxy.session.request_walk import walk
from proxy.session.states import (
    AT_BORDER,
    CROWDED,
    HELD_UP,
    MIDWAY,
    RAW_TOKENS,
    TURN,
    WITHIN,
    Event,
    begin,
)
from proxy.session.tokens import take_requests
from proxy.session.wires import CLIENT, Wire, dropped

if TYPE_CHECKING:
    from proxy.session.pair import Pair

_MAX_AT_ONCE = 256
"""Requests that are read one by one before others have their turn: a millisecond. A chunk has room for 18,000."""

NOT_HELD: Final = -1


class RequestSide:
    """What comes from one client, until it is with the broker."""

    __slots__ = (
        "_client",
        "_held_since_ms",
        "_is_gathered",
        "_pair",
        "_paused",
        "body",
        "gates",
        "in_flight",
        "reasons",
        "rules",
        "sasl",
        "splitter",
        "write",
    )

    def __init__(self, pair: "Pair", in_flight: InFlight, splitter: FrameSplitter, gates: RequestGates) -> None:
        self._pair = pair
        self.rules = pair.rules
        self.in_flight = in_flight
        self.gates = gates
        self.sasl = pair.sasl
        self.body: Body | None = None
        """Of the request under way, while its end is still to come."""
        self.splitter = splitter
        self.reasons = 0
        self._held_since_ms = NOT_HELD
        """Since when the requests that the splitter holds have been held, if for a reason of ours."""
        self._client = pair.client
        self._paused = False
        self._is_gathered = False
        """So much of this client is kept that it counts (``Gathering``)."""
        self.write: Callable[[bytes], None] = dropped
        """Where forwarded bytes go: the broker connection's ``write`` while there is one."""

    def connected(self, broker: Wire, broker_id: int) -> None:
        """Forward to ``broker`` (node id, -1: not known yet) from now on."""
        self.write = broker.write
        if self.rules.protected_topics:
            self.write = Guard(self.rules.protected_topics, broker.write, lambda: self.sasl.raw).write
        self.gates.set_broker(broker_id)

    # ------------------------------------------------------------------------------------------ the hot path

    def feed(self, data: bytes, now_ms: int) -> None:
        """Take a chunk from the client. Raises ProtocolError where the client broke the protocol."""
        splitter = self.splitter
        remaining = splitter.remaining
        if remaining and splitter.is_within(len(data)):  # inside a body: opaque
            finished = not splitter.remaining
            self.write(data)
            if self.body is not None:
                self._came(self.body, len(data), now_ms, finished=finished)
            if finished and self.reasons:
                self._pause()
            return
        if remaining and self.body is not None:
            self._came(self.body, remaining, now_ms, finished=True)
        if not remaining and self.reasons & AT_BORDER:
            splitter.keep(data)
            if self.reasons & HELD_UP:
                self._client.pause_reading()  # again: uvloop reads on when that was said inside connection_made
            if self.reasons & RAW_TOKENS:
                take_requests(self, now_ms)
            self._note_hold(now_ms)
            return
        if not remaining and not splitter.held_bytes:
            position = walk(self, data, now_ms)
            if position >= len(data) and not self.reasons and len(self.in_flight) < MAX_IN_FLIGHT:
                splitter.remaining = position - len(data)
                self.write(data)
                return
            splitter.remaining = position
        self._take_frames(data, now_ms)
        self._note_hold(now_ms)

    def _note_hold(self, now_ms: int) -> None:
        """Take note since when requests have been held, if they are: what lacks bytes of the client's is not."""
        if self._is_gathered or self.splitter.held_bytes > FREE_BYTES:
            self._note_gathered()
        if not self.splitter.held_bytes or not self.reasons & HELD_UP:
            self._held_since_ms = NOT_HELD
        elif self._held_since_ms == NOT_HELD:
            self._held_since_ms = now_ms

    def _note_gathered(self) -> None:
        """Take note of what is kept of a request that is not whole, or of who has not proved who he is. Raises
        ProtocolError where this client's is the most of what is too much.
        """
        gathering, splitter = self.rules.gathering, self.splitter
        self._is_gathered = splitter.held_bytes > FREE_BYTES and (not splitter.ready or self.gates.restricted)
        if not self._is_gathered:
            gathering.forget(self._pair)
            return
        most = gathering.note(self._pair, splitter.held_bytes)
        if most is None:
            return
        error = ProtocolError(
            Cause.KEPT_TOO_MUCH,
            f"requests that are not whole yet take more than {gathering.most_bytes} bytes together, and of this "
            "connection's most is kept",
        )
        if most is self._pair:
            raise error
        most.reject(CLIENT, error)

    def stop_for(self, reasons: int) -> None:
        """Stop for what the last request has made a reason of."""
        if not reasons:
            return
        self.reasons = begin(Event.READ, self.reasons, reasons)
        if reasons & TURN:
            self.rules.later(self._pair.next_requests)

    def _came(self, body: Body, size: int, now_ms: int, *, finished: bool) -> None:
        """Take what has come of the request under way."""
        if finished:
            self.body = None
            if body.rest_us:
                self.gates.costs.rest_came(body.account, body.rest_us, now_ms)
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
            before = len(self.in_flight)
            outcome = gates.read(chunk, position, head, now_ms)
            self._was_held(held_ms, before)
            self.stop_for(gates.take_reasons())
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
                self.body = gates.body(position - len(chunk))
            self._look_for_crowd()
            if self.reasons & AT_BORDER:
                if position < stop:
                    splitter.hold(chunk, position, 0)
                    stop = position
                break
        self._forward(chunk, start, stop)
        if self.reasons & RAW_TOKENS:
            take_requests(self, now_ms)
            return
        if splitter.held_bytes and splitter.ready and not self.reasons & AT_BORDER:
            self.stop_for(TURN)
        if self.reasons and not splitter.remaining:
            self._pause()

    def _was_held(self, held_ms: int, before: int) -> None:
        """Take note with the request that has gone, if one has and is to be answered, for how long it was held."""
        if held_ms and len(self.in_flight) > before:
            self.in_flight[-1] = (*self.in_flight[-1][:HELD_MS], held_ms)

    def _look_for_crowd(self) -> None:
        if len(self.in_flight) >= MAX_IN_FLIGHT:
            self.reasons = begin(Event.READ, self.reasons, CROWDED)

    def _forward(self, chunk: bytes, start: int, stop: int) -> None:
        if start >= stop:
            return
        chunk = self.gates.fetches.lowered(chunk)
        self.write(chunk if start == 0 and stop == len(chunk) else chunk[start:stop])

    # -------------------------------------------------------------------------------- requests that do not go

    def drop_answered(self) -> int | None:
        """Drop the requests held that expect an answer, and return how many; None if the first is not all there.

        Of such a one the broker must not see a part. Raises ProtocolError where a request ends inside its header.
        """
        held = self.splitter.release()
        found = without_answered(self.gates.served, held)
        if found is None:
            return None
        kept, dropped = found
        if kept:
            self.splitter.keep(kept)
        else:
            self._held_since_ms = NOT_HELD
        return dropped

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
        if self.body is not None:
            self.body.leave(self.splitter.remaining)
            self.body = None
        self.rules.gathering.forget(self._pair)
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
