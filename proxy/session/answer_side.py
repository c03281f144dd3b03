"""From the broker to the client: answers matched to requests, and passed on as they came or with what is due on them.

Of an answer only the correlation id is read, unless something is due (``serving``): then ``due`` sees to it.
Sans-I/O: bytes and time come in, bytes go out through a ``Wire``.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from protocol.errors import Cause, ProtocolError
from protocol.frames import RESPONSE_HEAD, FrameSplitter
from proxy.session.answer_walk import walk
from proxy.session.changes import Advertise, Changes
from proxy.session.due import HELD, act_on
from proxy.session.gates.requests import RequestGates
from proxy.session.in_flight import ACCOUNT, ACTIONS, API, CAME_MS, CORRELATION_ID, HELD_MS, SEEN, InFlight
from proxy.session.request_side import RequestSide
from proxy.session.serving import AUTHENTICATED, PROVES
from proxy.session.states import (
    ANSWER_BORDER,
    HELD_BACK,
    OVERSIZED,
    RAW_TOKENS,
    UNTIL_ANSWERED,
    WALKED,
    Event,
    begin,
    end,
)
from proxy.session.tokens import take_answers
from proxy.session.wires import Wire

if TYPE_CHECKING:
    from proxy.session.pair import Pair

UNKNOWN: Final = -1
"""The node id of a broker that is not known yet."""


class AnswerSide:
    """What comes from one broker connection, until it is with the client."""

    __slots__ = (
        "_broker",
        "changes",
        "gates",
        "in_flight",
        "latencies",
        "pair",
        "reasons",
        "requests",
        "rules",
        "sasl",
        "splitter",
        "write",
    )

    def __init__(
        self, pair: "Pair", in_flight: InFlight, gates: RequestGates, requests: RequestSide, advertise: Advertise
    ) -> None:
        self.pair = pair
        self.rules = pair.rules
        self.in_flight = in_flight
        self.requests = requests
        self.sasl = pair.sasl
        self.changes = Changes(pair, advertise)
        self.gates = gates
        self._broker: Wire | None = None
        self.latencies = pair.rules.latencies.of(UNKNOWN)
        self.reasons = 0
        self.splitter = FrameSplitter(RESPONSE_HEAD, self.rules.response_limit)
        self.write: Callable[[bytes], None] = pair.client.write

    # ------------------------------------------------------------------------------------------ the hot path

    def feed(self, data: bytes, now_ms: int) -> None:
        """Take a chunk from the broker. Raises ProtocolError where the broker broke the protocol."""
        splitter = self.splitter
        remaining = splitter.remaining
        if remaining and splitter.is_within(len(data)):  # inside a body: opaque
            finished = not splitter.remaining
            self.write(data)
            if finished and self.requests.reasons & UNTIL_ANSWERED:
                self.pair.answered(now_ms)
            return
        if remaining:
            self._take_answers(data, now_ms)
        elif self.reasons & ANSWER_BORDER:
            splitter.keep(data)
            if self.reasons & RAW_TOKENS:
                take_answers(self, now_ms)
        elif splitter.held_bytes:
            self._take_answers(data, now_ms)
        else:
            position = walk(self, data, now_ms)
            if position == len(data):
                self.write(data)
                if self.requests.reasons & UNTIL_ANSWERED:
                    self.pair.answered(now_ms)
                return
            splitter.remaining = position
            self._take_answers(data, now_ms)

    def _take_answers(self, data: bytes, now_ms: int) -> None:
        """Take every answer of a chunk, from where the splitter says the first one begins."""
        chunk, position, heads = self.splitter.split(data)
        start = held_ms = 0
        in_flight = self.in_flight
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
                self.latencies.came(entry[API].spec.api_key, max(now_ms - held_ms - entry[CAME_MS], 0))
                if self.rules.costs.on and not entry[ACTIONS] & (AUTHENTICATED | PROVES):
                    entry = self.gates.costs.answered(entry, size, now_ms)
            elif entry[CAME_MS] < SEEN:
                held_ms = now_ms + entry[CAME_MS]  # as long as it, what came behind it was held
            if entry[ACTIONS]:
                start = act_on(self, entry, chunk, start, position, size, now_ms)
                if start == HELD:
                    return
            self.latencies.went(entry[API].spec.api_key, entry[HELD_MS] + held_ms)
            position += 4 + size
        if start < len(chunk):
            self.write(chunk[start:] if start else chunk)
        if self.requests.reasons & UNTIL_ANSWERED:
            self.pair.answered(now_ms)

    @property
    def idle(self) -> bool:
        """Everything in flight has been answered, to the last byte."""
        return not self.in_flight and not self.splitter.remaining and not self.splitter.held_bytes

    def walk_on(self, now_ms: int) -> None:
        """Do a further slice of the long answer that is under way; behind the last one go on with what came since."""
        rewriting = self.changes.under_way
        if rewriting is None:
            return
        if not rewriting.advance():
            self.rules.later(self.pair.next_slice)
            return
        self.reasons = end(Event.NEXT, self.reasons, WALKED)
        self.feed(b"", now_ms)
        self._resume()

    # -------------------------------------------------------------------------------------- stopping and going on

    def connected(self, broker: Wire, broker_id: int) -> None:
        """Take answers from ``broker`` (node id, -1: not known yet)."""
        self._broker = broker
        self.set_broker(broker_id)

    def set_broker(self, broker_id: int) -> None:
        """Take that node id for the broker's."""
        self.latencies = self.rules.latencies.of(broker_id)

    def release(self, now_ms: int) -> None:
        """Go on with an answer that was held back for its throttle time."""
        self._release(Event.THROTTLE_OVER, HELD_BACK, now_ms)

    def turn(self, now_ms: int) -> None:
        """Go on with an answer that waited for its turn."""
        self._release(Event.ADMITTED, OVERSIZED, now_ms)

    def _release(self, event: Event, reason: int, now_ms: int) -> None:
        if self.reasons & reason:
            self.reasons = end(event, self.reasons, reason)
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
        if not self.reasons & ~RAW_TOKENS and self._broker is not None:
            self._broker.resume_reading()
