"""From the client to the broker: requests found in the stream, policies asked, the client stopped when it must wait.

Only the header of a request is read. A chunk of whole frames that need nothing is forwarded in one write, as it
came. A client that must wait is stopped at a frame border: what it sent beyond stays in the splitter (bounded by
the chunk) and its socket is not read. Sans-I/O: bytes and time come in, bytes go out through a ``Wire``.
The ``policies`` decide about single requests.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from protocol.frames import REQUEST_HEAD, FrameSplitter
from proxy.session.admission import Ended
from proxy.session.exchange import MAX_IN_FLIGHT, Body, Forward, Need, Park, Reply, Splice, dropped, pass_on
from proxy.session.fast_path import walk_requests
from proxy.session.flow import ANSWERING, AT_BORDER, CROWDED, HELD_UP, LOCAL, MIDWAY, RAW_TOKENS, TURN, WITHIN, Flow
from proxy.session.policies.requests import Policies
from proxy.session.worker_state import FREE_BYTES

if TYPE_CHECKING:
    from proxy.session.session import Session

_MAX_AT_ONCE = 256
"""Requests that are read one by one before others have their turn: a millisecond. A chunk has room for 18,000."""


class RequestStream(Flow):
    """The requests of one client, until they are with the broker."""

    __slots__ = ("_held_since_ms", "_holds_much", "_paused", "body", "policies", "session", "splitter", "write")

    def __init__(self, session: "Session", policies: Policies) -> None:
        super().__init__()
        self.session = session
        self.policies = policies
        self.body: Body | None = None
        """The rest of the request under way, while its end is still to come."""
        self.splitter = FrameSplitter(REQUEST_HEAD, session.worker.request_limit)
        self._held_since_ms: int | None = None
        """Since when the requests that the splitter holds have been held, if for a reason of ours."""
        self._paused = False
        self._holds_much = False
        """So much of this client is kept that it counts (``HeldRequests``)."""
        self.write: Callable[[bytes], None] = dropped
        """Where forwarded bytes go: the broker connection's ``write`` while there is one."""

    # ------------------------------------------------------------------------------------------ the hot path

    def feed(self, data: bytes, now_ms: int, wait: Ended | None = None) -> None:
        """Take a chunk from the client. Raises ProtocolError where the client broke the protocol."""
        if self.session.closed:
            return  # TLS still hands over what it had read
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
                self.session.client.pause_reading()  # again: uvloop reads on when that was said inside connection_made
            if self.reasons & RAW_TOKENS:
                self._take_tokens(now_ms)
            self._remember_hold(now_ms)
            return
        if not remaining and not splitter.held_bytes:
            position = walk_requests(self, data, now_ms)
            if position >= len(data) and not self.reasons and len(self.session.in_flight) < MAX_IN_FLIGHT:
                splitter.remaining = position - len(data)
                self.write(data)
                return
            splitter.remaining = position
        self._take_frames(data, now_ms, wait)
        self._remember_hold(now_ms)

    def _remember_hold(self, now_ms: int) -> None:
        """Remember since when requests have been held, if they are: what lacks bytes of the client's is not."""
        if self._holds_much or self.splitter.held_bytes > FREE_BYTES:
            self._count_held()
        since_ms = now_ms if self._held_since_ms is None else self._held_since_ms
        self._held_since_ms = since_ms if self.splitter.held_bytes and self.reasons & HELD_UP else None

    def _count_held(self) -> None:
        """Count what is kept of a request that is not whole, or of who has not proved who he is."""
        held, splitter = self.session.worker.held_requests, self.splitter
        self._holds_much = splitter.held_bytes > FREE_BYTES and (not splitter.ready or self.policies.restricted)
        if self._holds_much:
            held.count(self.session, splitter.held_bytes)
        else:
            held.forget(self.session)

    def take(self, forward: Forward, rest_us: float = 0.0, held_ms: int = 0) -> None:
        """Expect the answer and the rest of a request that goes, and stop behind it as its policy said."""
        if forward.exchange is not None:
            forward.exchange.held_ms = held_ms
            self.session.in_flight.append(forward.exchange)
        if forward.body is not None:
            self.body = forward.body
            if rest_us:
                forward.body.rest_us = rest_us
        if forward.stop:
            self.stop(forward.stop)

    def _came(self, body: Body, size: int, now_ms: int, *, finished: bool) -> None:
        if finished:
            self.body = None
            if body.rest_us:
                self.policies.costs.rest_came(body.account, body.rest_us, now_ms)
        if not body.came(size, now_ms, finished=finished):
            self.stop(MIDWAY)

    def _take_frames(self, data: bytes, now_ms: int, wait: Ended | None) -> None:
        """Take the frames of a chunk, from where the splitter says the first one begins; of very many some later.

        ``wait``: how the wait of the first one has ended, if it has waited.
        """
        splitter = self.splitter
        held_ms = 0 if self._held_since_ms is None else now_ms - self._held_since_ms
        chunk, position, heads = splitter.split(data, _MAX_AT_ONCE)
        edits: list[Splice] = []
        stop = len(chunk)
        for head in heads:
            if self.reasons & AT_BORDER or len(self.session.in_flight) >= MAX_IN_FLIGHT:
                splitter.hold(chunk, position, 0)
                stop = position
                break
            decision = self.policies.before(chunk, position, head, now_ms, wait)
            wait = None
            end: int = position + 4 + head[0]
            if isinstance(decision, Forward):
                self.take(decision, held_ms=held_ms)
                if decision.edit is not None:
                    edits.append(decision.edit)
            elif not isinstance(decision, Reply):
                splitter.hold(chunk, position, decision.size if isinstance(decision, Need) else 0)
                if isinstance(decision, Park):
                    self.stop(decision.reason)
                stop = position
                break
            else:
                edits.append(Splice(position, end, b""))
                if decision.answer is None:
                    self.stop(LOCAL)
                else:
                    self.session.identity.account.meter.bytes_out += len(decision.answer)
                    self.session.client.write(decision.answer)
            position = end
        pass_on(self.write, chunk, stop, edits)
        if len(self.session.in_flight) >= MAX_IN_FLIGHT:
            self.stop(CROWDED)
        if self.reasons & RAW_TOKENS:
            self._take_tokens(now_ms)
            return
        if splitter.held_bytes and splitter.ready and not self.reasons & AT_BORDER:
            self.stop(TURN)
        if self.reasons and not splitter.remaining:
            self._pause()

    # ----------------------------------------------------------------------------- SASL tokens without Kafka's headers

    def _take_tokens(self, now_ms: int) -> None:
        """Pass on the client's tokens, each after the answer to the one before where every one is answered."""
        splitter, login = self.splitter, self.policies.login
        if not splitter.ready:
            return
        held = splitter.release()
        needed = 0
        while held and self.reasons & AT_BORDER == RAW_TOKENS:
            token = login.token(held, self.policies.served, now_ms)
            if not isinstance(token, bytes):
                needed = 0 if token is None else token.size
                break
            self.write(token)
            held = held[len(token) :]
            if self.session.sasl.raw_is_answered:
                self.stop(ANSWERING)
        if held:
            splitter.hold(held, 0, needed)
        if not self.reasons & AT_BORDER:
            self.feed(b"", now_ms)

    def leave(self) -> None:
        """Give back what the connection, which is over, has taken; nothing is charged that never came."""
        self.session.worker.held_requests.forget(self.session)
        if self.body is not None:
            self.body.leave()
            self.body = None

    # -------------------------------------------------------------------------------------- stopping and going on

    def stop(self, reasons: int) -> None:
        """Read nothing behind the last request for these reasons: from the next frame border on, or at once."""
        self.begin(reasons)
        if reasons & TURN:
            self.session.worker.later(partial(self.session.next_turn, TURN))
        if not self.splitter.remaining or reasons & WITHIN:
            self._pause()

    def go_on(self, now_ms: int, wait: Ended | None = None) -> None:
        """Feed what was held again, and read the client again, where no reason forbids it."""
        if self.splitter.held_bytes and not self.reasons & HELD_UP:
            self.feed(b"", now_ms, wait)
        # Within a frame few reasons stop: the others wait for its end, so that end has to be read.
        holding = self.reasons & WITHIN if self.splitter.remaining else self.reasons & ~RAW_TOKENS
        if self._paused and not holding:
            self._paused = False
            self.session.client.resume_reading()

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            self.session.client.pause_reading()
