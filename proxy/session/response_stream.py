"""From the broker to the client: answers matched to requests, and passed on as they came or with what is due on them.

Only the correlation id of an answer is read, unless something is due (``serving``): then ``responses`` does it.
Sans-I/O: bytes and time come in, bytes go out through a ``Wire``.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from librt.strings import read_i32_be

from protocol.errors import Cause, ProtocolError
from protocol.frames import RESPONSE_HEAD, FrameSplitter
from protocol.resumable_walk import ResumableWalk, names_nobody
from protocol.sasl import raw_token_end
from proxy.session.admission import Ended
from proxy.session.exchange import Exchange, Need, Park, Splice, Streamed, pass_on
from proxy.session.flow import ANSWER_BORDER, RAW_TOKENS, UNTIL_ANSWERED, WALKED, Flow
from proxy.session.policies.request_time import KIND as REQUEST_TIME
from proxy.session.policies.requests import Policies
from proxy.session.responses import Responses
from proxy.session.serving import AUTHENTICATED, PROVES, REWRITE

if TYPE_CHECKING:
    from proxy.session.session import Session

_HEAD_BYTES: Final = RESPONSE_HEAD.size
_LEAST_BYTES: Final = _HEAD_BYTES - 4


class ResponseStream(Flow):
    """The answers of one broker connection, until they are with the client."""

    __slots__ = ("latencies", "policies", "responses", "session", "splitter", "walk", "write")

    def __init__(self, session: "Session", policies: Policies, responses: Responses) -> None:
        super().__init__()
        self.session = session
        self.policies = policies
        self.responses = responses
        self.latencies = session.worker.latencies.of(-1)  # the broker is not known yet
        self.splitter = FrameSplitter(RESPONSE_HEAD, self.session.worker.response_limit)
        self.write: Callable[[bytes], None] = session.client.write
        self.walk: ResumableWalk | None = None
        """The walk through the answer that is coming; the splitter then counts the bytes until the next varint."""

    @property
    def is_at_border(self) -> bool:
        """Whether no part of an answer has come, or all of it has gone."""
        return self.walk is None and not self.splitter.remaining and not self.splitter.held_bytes

    # ------------------------------------------------------------------------------------------ the hot path

    def feed(self, data: bytes, now_ms: int, wait: Ended | None = None) -> None:
        """Take a chunk from the broker. Raises ProtocolError where the broker broke the protocol."""
        if self.session.closed:
            return  # TLS still hands over what it had read
        splitter = self.splitter
        remaining = splitter.remaining
        if remaining and splitter.is_within(len(data)):  # inside a body: opaque
            finished = not splitter.remaining
            self.write(data)
            if finished and self.walk is None and self.session.requests.reasons & UNTIL_ANSWERED:
                self.session.answered(now_ms)
            return
        if remaining or self.walk is not None:
            self._take_answers(data, now_ms)
        elif self.reasons & ANSWER_BORDER:
            splitter.keep(data)
            if self.reasons & RAW_TOKENS:
                self._take_tokens(now_ms)
        elif splitter.held_bytes:
            self._take_answers(data, now_ms, wait)
        else:
            position = self._walk(data, now_ms)
            if position == len(data):
                self.write(data)
                if self.session.requests.reasons & UNTIL_ANSWERED:
                    self.session.answered(now_ms)
                return
            splitter.remaining = position
            self._take_answers(data, now_ms)

    def _walk(self, data: bytes, now_ms: int) -> int:
        """Take the answers at the beginning of ``data`` that need nothing; return where the first other begins."""
        end = len(data)
        has_costs = self.session.worker.costs.on
        limit = self.splitter.limit
        in_flight = self.session.in_flight
        latencies = self.latencies
        position = 0
        while end - position >= _HEAD_BYTES and in_flight:
            size: int = read_i32_be(data, position)
            exchange = in_flight[0]
            if exchange.correlation_id != read_i32_be(data, position + 4) or not _LEAST_BYTES <= size <= limit:
                break
            api = exchange.api
            if exchange.actions and (
                exchange.actions != REWRITE
                or api.outline is None
                or position + 4 + size > end
                or not names_nobody(api.outline, data, position, size)
            ):
                break
            if has_costs and exchange.account.is_shut(REQUEST_TIME):  # a throttle may be told
                break
            in_flight.pop(0)
            meter = exchange.account.meter
            meter.bytes_out += 4 + size
            meter.request_time_ms += now_ms - exchange.sent_ms
            latencies.count(api.spec.api_key, now_ms - exchange.sent_ms, exchange.held_ms)
            position += 4 + size
        return position

    def _take_answers(self, data: bytes, now_ms: int, wait: Ended | None = None) -> None:
        """Take every answer of a chunk, from where the splitter says the first one begins; ``wait`` is of that one."""
        splices: list[Splice] = []
        if self.walk is not None:
            self._walk_on(self.walk, data, splices)
        chunk, position, heads = self.splitter.split(data)
        held_ms = 0
        for size, correlation_id in heads:
            exchange = self._next(correlation_id)
            if not exchange.has_begun:
                self._count(exchange, size, held_ms, now_ms)
            elif exchange.answer_held_since_ms is not None:
                held_ms = now_ms - exchange.answer_held_since_ms  # as long as it, what came behind it was held
            if exchange.actions:
                change = self.responses.process(exchange, chunk, position, size, now_ms, wait)
                if isinstance(change, Splice):
                    splices.append(change)
                elif isinstance(change, Streamed):
                    if change.edit is not None:
                        splices.append(change.edit)
                    self._walked(change.walk, chunk, position, splices)
                elif change is not None:
                    self._hold(exchange, change, chunk, position, now_ms)
                    pass_on(self.write, chunk, position, splices)
                    return
            self.latencies.went(exchange.api.spec.api_key, exchange.held_ms + held_ms)
            position += 4 + size
            wait = None
        pass_on(self.write, chunk, len(chunk), splices)
        if self.walk is not None:
            self.splitter.remaining = self.walk.opaque
            return
        if self.session.requests.reasons & UNTIL_ANSWERED:
            self.session.answered(now_ms)

    def _walk_on(self, walk: ResumableWalk, data: bytes, splices: list[Splice]) -> None:
        """Go on with the walk through the answer under way, and tell the splitter where that ends."""
        walk.pass_over(walk.opaque - self.splitter.remaining)
        self.splitter.remaining = walk.left
        self._walked(walk, data, 0, splices)

    def _walked(self, walk: ResumableWalk, chunk: bytes, position: int, splices: list[Splice]) -> None:
        """Walk through what has come of an answer, and add what changes of it."""
        end = min(position + walk.left, len(chunk))
        stop, written = walk.take(chunk, position)
        if stop < end:
            splices.append(Splice(stop, end, written))
        self.walk = walk if walk.left else None

    def _next(self, correlation_id: int) -> Exchange:
        """Return the exchange that is answered next. Raises ProtocolError if that is not its answer."""
        if not self.session.in_flight:
            raise ProtocolError(Cause.UNEXPECTED_RESPONSE, f"response {correlation_id} with no request in flight")
        exchange = self.session.in_flight.pop(0)
        if exchange.correlation_id != correlation_id:
            expected = f"{exchange.correlation_id} ({exchange.api.spec.name}) is expected"
            raise ProtocolError(Cause.CORRELATION_MISMATCH, f"response {correlation_id} while {expected}")
        return exchange

    def _count(self, exchange: Exchange, size: int, held_ms: int, now_ms: int) -> None:
        """Count an answer that begins to come, and charge it to request_percentage."""
        meter = exchange.account.meter
        meter.bytes_out += 4 + size
        meter.request_time_ms += now_ms - exchange.sent_ms
        self.latencies.came(exchange.api.spec.api_key, max(now_ms - held_ms - exchange.sent_ms, 0))
        if self.session.worker.costs.on and not exchange.actions & (AUTHENTICATED | PROVES):
            self.policies.costs.after(exchange, size, now_ms)

    def _hold(self, exchange: Exchange, hold: Need | Park, chunk: bytes, position: int, now_ms: int) -> None:
        """Keep an answer, until more of it has come or for a reason of the proxy's own."""
        exchange.has_begun = True
        self.session.in_flight.insert(0, exchange)
        if isinstance(hold, Need):
            self.splitter.hold(chunk, position, hold.size)
            return
        if exchange.answer_held_since_ms is None:
            exchange.answer_held_since_ms = now_ms
        self.splitter.hold(chunk, position, 0)
        self.stop(hold.reason)

    # ----------------------------------------------------------------------------- SASL tokens without Kafka's headers

    def _take_tokens(self, now_ms: int) -> None:
        """Pass on the broker's tokens; the one that ends the exchange is the last. ProtocolError for one too many."""
        splitter = self.splitter
        if not splitter.ready:
            return
        held = splitter.release()
        wanted = 0
        while held and self.reasons & ANSWER_BORDER == RAW_TOKENS:
            wanted = raw_token_end(held, self.session.worker.unauthenticated_request_limit)
            if wanted > len(held):
                break
            if not self.session.in_flight:
                raise ProtocolError(Cause.UNEXPECTED_RESPONSE, "raw SASL token with none in flight")
            self.session.in_flight.pop(0).account.meter.bytes_out += wanted
            self.session.sasl.raw_answer(held[4:wanted], now_ms)
            self.write(held[:wanted])
            held = held[wanted:]
            wanted = 0
        if held:
            splitter.hold(held, 0, wanted)
        if not self.reasons & ANSWER_BORDER and held:
            self.feed(b"", now_ms)
        elif self.session.requests.reasons & UNTIL_ANSWERED:
            self.session.answered(now_ms)

    # -------------------------------------------------------------------------------------- stopping and going on

    def stop(self, reasons: int) -> None:
        if not self.reasons & ~RAW_TOKENS and self.session.broker is not None:
            self.session.broker.pause_reading()
        self.begin(reasons)
        if reasons & WALKED:
            self.session.worker.later(partial(self.session.next_turn, WALKED))

    def go_on(self, ended: int, now_ms: int, wait: Ended | None = None) -> None:
        """Go on with what was held for reasons that have ended: with the next slice of a long answer, if others had
        their turn. The broker is read again when no reason is left.
        """
        if ended & WALKED and not self.responses.advance():
            self.session.worker.later(partial(self.session.next_turn, WALKED))
            return
        self.end(ended)
        if self.splitter.held_bytes:
            self.feed(b"", now_ms, wait)
        if not self.reasons & ~RAW_TOKENS and self.session.broker is not None:
            self.session.broker.resume_reading()
