"""From the client to the broker: headers read, gates asked, the client stopped when it must wait.

Of a request only the header is read. A chunk of whole frames that need nothing is forwarded in one write, as it
came. A client that must wait is stopped at a frame border: what it sent beyond stays in the splitter (bounded by
the chunk) and its socket is not read. Sans-I/O: bytes and time come in, bytes go out through a ``Wire``.
Whose a request is knows the ``Sender``, what it is charged the ``gates``.
"""

from collections.abc import Callable

from protocol.api_versions import unsupported_version_answer
from protocol.errors import Cause, ProtocolError
from protocol.frames import REQUEST_HEAD, FrameSplitter, Head
from protocol.headers import produce_acks, request_body_offset
from protocol.sasl import raw_token_end
from proxy.identity.sasl import State
from proxy.session.body import Body
from proxy.session.gates.fetch import FetchGate, answerable
from proxy.session.gates.produce import ACKS_0, ProduceGate
from proxy.session.in_flight import ACCOUNT, API, RAW_TOKEN, InFlight, expect
from proxy.session.pair import Pair
from proxy.session.protected_topics import Guard
from proxy.session.reasons import (
    ANSWERING,
    AT_BORDER,
    CROWDED,
    HELD_UP,
    MIDWAY,
    RAW_TOKENS,
    TURN,
    WITHIN,
)
from proxy.session.request_prefix import NONE
from proxy.session.sender import AFTER_CORRELATION_ID, MORE, UNREAD, Sender
from proxy.session.serving import API_VERSIONS_KEY, AUTHENTICATE, COORDINATE, FETCH, LOOK_UP, PRODUCE, Served
from proxy.session.wires import Wire, dropped

MAX_IN_FLIGHT = 1024
"""A broker works on one request of a connection at a time, and the Java client sends five ahead."""

_MAX_AT_ONCE = 256
"""Requests that are read one by one before others have their turn: a millisecond. A chunk has room for 18,000."""

_MAX_UNANSWERED = 1024

_unpack = REQUEST_HEAD.unpack_from
_LEAST_BYTES = REQUEST_HEAD.size - 4
_MAX_SMALL_FRAME_BYTES = 64 * 1024
GSSAPI_TOKEN = 0x60
"""What a GSSAPI token begins with (RFC 2743 §3.1); no api key does."""


class RequestSide:
    """What comes from one client, until it is with the broker."""

    __slots__ = (
        "_body",
        "_client",
        "_fetches",
        "_in_flight",
        "_pair",
        "_paused",
        "_produces",
        "_rules",
        "_sasl",
        "_served",
        "coordinates",
        "reasons",
        "sender",
        "splitter",
        "write",
    )

    def __init__(
        self, pair: Pair, in_flight: InFlight, sender: Sender, produces: ProduceGate, fetches: FetchGate
    ) -> None:
        self._pair = pair
        rules = self._rules = pair.rules
        self._in_flight = in_flight
        self.sender = sender
        self._produces = produces
        self._fetches = fetches
        self._sasl = pair.sasl
        self._served = rules.served
        self._body: Body | None = None
        """Of the request under way, while its end is still to come."""
        self.splitter = FrameSplitter(REQUEST_HEAD, rules.request_limit)
        self.reasons = 0
        self.coordinates = False
        """It carries group or transaction traffic."""
        self._client = pair.client
        self._paused = False
        self.write: Callable[[bytes], None] = dropped
        """Where forwarded bytes go: the broker connection's ``write`` while there is one."""

    def connected(self, broker: Wire, broker_id: int) -> None:
        """Forward to ``broker`` (node id, -1: not known yet) from now on."""
        self.write = broker.write
        if self._rules.protected_topics:
            self.write = Guard(self._rules.protected_topics, broker.write, lambda: self._sasl.raw).write
        self.set_broker(broker_id)

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
        elif self.reasons & AT_BORDER:
            splitter.keep(data)
            if self.reasons & HELD_UP:
                self._client.pause_reading()  # again: uvloop reads on when that was said inside connection_made
            if self.reasons & RAW_TOKENS:
                self._take_tokens(now_ms)
            return
        elif not splitter.held_bytes:
            position = self._walk(data, now_ms)
            if position >= len(data) and not self.reasons and len(self._in_flight) < MAX_IN_FLIGHT:
                splitter.remaining = position - len(data)
                self.write(data)
                return
            splitter.remaining = position
        self._take(data, now_ms)

    def _walk(self, data: bytes, now_ms: int) -> int:
        """Take the frames at the beginning of ``data`` that are the usual ones; return where the first other begins.

        Usual is what needs nothing, and a Produce that begins as the last one did. In place, because a call or a
        list for each frame is a tenth of a small request; ``_take`` does the same for every frame there is.
        """
        end = len(data)
        produces = self._produces
        prefix = produces.prefix
        number = prefix.number
        if number != NONE and produces.generation != self._rules.engine.generation:
            number = NONE
        limit = self.splitter.limit
        in_flight = self._in_flight
        served = self._served
        account = self.sender.account
        meter = account.meter
        client_id_bytes = self.sender.client_id_bytes
        position = 0
        while end - position >= REQUEST_HEAD.size and len(in_flight) < MAX_IN_FLIGHT:
            size: int
            size, key_version, correlation_id, _ = _unpack(data, position)
            if not _LEAST_BYTES <= size <= limit:
                break
            if key_version == number:
                field = position + prefix.width
                if (
                    field + 2 > end
                    or produces.bound.shut
                    or prefix.width > size
                    or not data.startswith(prefix.beginning, position + AFTER_CORRELATION_ID)
                ):
                    break
                api = prefix.api
                api.requests += 1
                meter.produce_requests += 1
                meter.produce_bytes += size
                throttle_ms = produces.bound.charge(size, now_ms)
                if throttle_ms or data.startswith(ACKS_0, field):
                    missing = position + 4 + size - end
                    self.splitter.remaining = max(missing, 0)  # a mute waits for the frame's end
                    acks_0 = data.startswith(ACKS_0, field)
                    produces.charged(api, correlation_id, throttle_ms, acks_0, missing, now_ms)
                    self._look_after(missing)
                    if self.reasons & AT_BORDER:
                        return position + 4 + size
                else:
                    in_flight.append((correlation_id, api.on_answer, api, 0, 0, account, now_ms))
            else:
                usual = served.get(key_version)
                if (
                    usual is None
                    or usual.on_request
                    or not data.startswith(client_id_bytes, position + AFTER_CORRELATION_ID)
                ):
                    break
                usual.requests += 1
                meter.other_requests += 1
                meter.other_bytes += 4 + size
                in_flight.append((correlation_id, usual.on_answer, usual, 0, 0, account, now_ms))
            position += 4 + size
        if position > end and self._body is None:
            self._begin_body(position - end)
        return position

    def _look_after(self, missing: int) -> None:
        """Take over what the gate of Produce requests has begun; of many without answers let others have their turn."""
        produces = self._produces
        if missing > 0:
            self._body, produces.body = produces.body, None
            if self._body is not None:
                self._body.count(-missing)
        if produces.unanswered >= _MAX_UNANSWERED:  # a chunk has room for 10,000
            produces.unanswered = 0
            self._wait_for_turn()

    def _begin_body(self, missing: int) -> None:
        """Count the last request, of which so much is still to come, as far as it has come."""
        entry = self._in_flight[-1]
        is_charged = entry[API].on_request == PRODUCE and not self.restricted
        self._body = self._produces.under_way(entry) if is_charged else Body(entry[ACCOUNT])
        self._body.count(-missing)

    def _came(self, body: Body, size: int, now_ms: int, *, finished: bool) -> None:
        """Take what has come of the request under way."""
        if finished:
            self._body = None
        if not body.came(size, now_ms, finished=finished):
            self.stop(MIDWAY)

    def _take(self, data: bytes, now_ms: int) -> None:
        """Take the frames of a chunk, from where the splitter says the first one begins; of very many some later."""
        splitter = self.splitter
        chunk, position, heads = splitter.split(data, _MAX_AT_ONCE)
        if len(self._in_flight) >= MAX_IN_FLIGHT:
            self.reasons |= CROWDED
        if self.reasons & AT_BORDER and 0 < position < len(chunk):  # the frame under way is the last to go
            splitter.hold(chunk, position, 0)
            self._forward(chunk, 0, position)
            self._pause()
            return
        start = 0
        stop = len(chunk)
        for head in heads:
            api = self._served.get(head[1])
            if api is None:
                start = self._refuse(chunk, start, position, head, now_ms)
                if start < 0:
                    return
            elif not self._read(api, chunk, position, head, now_ms):
                stop = position
                break
            position += 4 + head[0]
            if position > len(chunk) and self._body is None:
                self._begin_body(position - len(chunk))
            if len(self._in_flight) >= MAX_IN_FLIGHT:
                self.reasons |= CROWDED
            if self.reasons & AT_BORDER:
                if position < stop:
                    splitter.hold(chunk, position, 0)
                    stop = position
                break
        self._forward(chunk, start, stop)
        if splitter.held_bytes and splitter.ready and not self.reasons & AT_BORDER:
            self._wait_for_turn()
        if self.reasons and not splitter.remaining:
            self._pause()

    def _forward(self, chunk: bytes, start: int, stop: int) -> None:
        if start >= stop:
            return
        chunk = self._fetches.lowered(chunk)
        self.write(chunk if start == 0 and stop == len(chunk) else chunk[start:stop])

    # ------------------------------------------------------------------------------------------------ one request

    def _read(self, api: Served, chunk: bytes, position: int, head: Head, now_ms: int) -> bool:
        """Do what the request at ``position`` needs; False if what that takes is not all there, and was held.

        Raises ProtocolError if the request ends inside what has to be read of it.
        """
        sender = self.sender
        body = UNREAD
        if self.restricted:  # what anybody may claim to be is neither counted nor kept
            if api.on_request in (PRODUCE, FETCH):
                return self._pass(api, chunk, position, head, now_ms)
        elif not chunk.startswith(sender.client_id_bytes, position + AFTER_CORRELATION_ID):
            if sender.crowded:
                return self._wait(chunk, position, ANSWERING)
            self._forget_prefixes()
            body = sender.find(api, chunk, position, head)
            if body == MORE:
                self.splitter.hold_more(chunk, position, head[0])
                return False
        if api.on_request in (PRODUCE, FETCH):
            gate = self._produces if api.on_request == PRODUCE else self._fetches
            verdict = gate.request(api, chunk, position, head, body, now_ms)
            if verdict:
                return self._hold(verdict, chunk, position, head)
            if api.on_request == PRODUCE:
                self._look_after(position + 4 + head[0] - len(chunk))
            return True
        if api.on_request == AUTHENTICATE:
            return self._observe(api, chunk, position, head, now_ms)
        if api.on_request == LOOK_UP and head[0] > (limit := self._rules.find_coordinator_limit):
            raise ProtocolError(
                Cause.FRAME_TOO_LARGE, f"{api.spec} request of {head[0]} bytes, limits.find_coordinator is {limit}"
            )
        self.coordinates = self.coordinates or api.on_request == COORDINATE
        self._expect(api, head, now_ms)
        return True

    def _expect(self, api: Served, head: Head, now_ms: int) -> None:
        account = self.sender.account
        api.requests += 1
        account.meter.other_requests += 1
        account.meter.other_bytes += 4 + head[0]
        self._in_flight.append(expect(head[2], api, account, now_ms))

    def _hold(self, verdict: int, chunk: bytes, position: int, head: Head) -> bool:
        """Keep the request at ``position``, and what follows: until more of it has come, or while a reason holds."""
        if verdict == MORE:
            self.splitter.hold_more(chunk, position, head[0])
            return False
        return self._wait(chunk, position, verdict)

    def _wait(self, chunk: bytes, position: int, reason: int) -> bool:
        self.splitter.hold(chunk, position, 0)
        self.reasons |= reason
        return False

    def _wait_for_turn(self) -> None:
        """Go on when others have had their turn."""
        self.reasons |= TURN
        self._rules.later(self._pair.next_requests)

    def _pass(self, api: Served, chunk: bytes, position: int, head: Head, now_ms: int) -> bool:
        """Let a Produce or Fetch go that nobody can be charged for: who sends it has not been proved.

        A broker that demands proof refuses it. One that does not proves the client by its answer, and what the client
        sends behind it waits for that.
        """
        end = position + 4 + head[0]
        body = request_body_offset(api.spec, chunk, position, end)
        acks = produce_acks(api.spec, chunk, body, end) if body >= 0 and api.on_request == PRODUCE else 1
        if body < 0 or acks is None:
            self.splitter.hold_more(chunk, position, head[0])
            return False
        if acks:
            self._expect(api, head, now_ms)
            self.reasons |= ANSWERING
        else:
            api.requests += 1
            if end > len(chunk):
                self._body = Body(self.sender.account)
        return True

    def _observe(self, api: Served, chunk: bytes, position: int, head: Head, now_ms: int) -> bool:
        """Take a SASL request; False if it is not all there and was held.

        What the client sends behind it waits for the answer, as it does at the broker: it belongs to whoever the
        client then is, and of two tokens under way no answer could be taken for that of the other.
        """
        size: int = head[0]
        end = position + 4 + size
        if size > self._rules.unauthenticated_request_limit:
            raise ProtocolError(Cause.FRAME_TOO_LARGE, f"{api.spec} request of {size} bytes")
        if end > len(chunk):
            self.splitter.hold(chunk, position, 4 + size)
            return False
        self._sasl.request(api.spec, chunk[position:end])
        if not self._sasl.authenticated:
            self.restrict()
        self._expect(api, head, now_ms)
        self.reasons |= ANSWERING
        return True

    # ------------------------------------------------------------------------- requests that need more than that

    def _refuse(self, chunk: bytes, start: int, position: int, head: Head, now_ms: int) -> int:
        """Answer an ApiVersions newer than the table with error 35 (KIP-511); raise for anything else.

        Returns where the bytes to forward begin now, or -1 when the frame was held: because it is not all there,
        or until what is in flight has been answered, since answers leave in the order of their requests.
        """
        size: int = head[0]
        key_version: int = head[1]
        correlation_id: int = head[2]
        api_key, api_version = key_version >> 16, key_version & 0xFFFF
        if api_key >> 8 == GSSAPI_TOKEN and self.restricted and self._sasl.state is State.NONE:
            self._forward(chunk, start, position)
            self.splitter.hold(chunk, position, 0)
            self._sasl.begin_without_handshake()
            self._take_tokens(now_ms)
            return -1
        newest = self._rules.advertised.get(API_VERSIONS_KEY, (0, 0))[1]
        if api_key != API_VERSIONS_KEY or not newest < api_version < 0x8000:
            raise self._rules.unserved(key_version)
        if size > _MAX_SMALL_FRAME_BYTES:
            raise ProtocolError(Cause.HEADER_TOO_LARGE, f"ApiVersions request of {size} bytes")
        end = position + 4 + size
        if end <= len(chunk) and self._pair.idle:
            self._forward(chunk, start, position)
            self._client.write(unsupported_version_answer(correlation_id, newest))
            return end
        self.splitter.hold(chunk, position, 4 + size)
        self._forward(chunk, start, position)
        if not self._pair.idle:
            self.stop(ANSWERING)
        return -1

    # ------------------------------------------------------------------------------------------- authentication

    def read_tokens(self, raw: bool) -> None:
        """Read SASL tokens without headers from now on, or requests again."""
        if raw:
            self.reasons |= RAW_TOKENS
        else:
            self.reasons &= ~RAW_TOKENS
            self._in_flight.clear()  # the last token of GSSAPI gets no answer of its own

    def _take_tokens(self, now_ms: int) -> None:
        """Pass raw tokens on, each after the answer to the one before where every one is answered."""
        if not self.splitter.ready:
            return
        held = self.splitter.release()
        sasl = self._sasl
        wanted = 0
        while held and self.reasons & AT_BORDER == RAW_TOKENS:
            wanted = raw_token_end(held, self._rules.unauthenticated_request_limit)
            if not sasl.raw_is_answered and len(held) >= REQUEST_HEAD.size and _unpack(held)[1] in self._served:
                sasl.raw_over()
            if wanted > len(held) or not sasl.raw:
                break
            sasl.raw_request(held[4:wanted])
            self.sender.account.meter.other_bytes += wanted
            self._in_flight.append(expect(0, RAW_TOKEN, self.sender.account, now_ms))
            self.write(held[:wanted])
            held = held[wanted:]
            wanted = 0
            if sasl.raw_is_answered:
                self.stop(ANSWERING)
        if held:
            if not sasl.raw:
                wanted = 0
            elif not sasl.raw_is_answered and len(held) < REQUEST_HEAD.size:
                wanted = min(wanted, REQUEST_HEAD.size)  # from there on it is seen whether it is a request instead
            self.splitter.hold(held, 0, wanted)
        if not self.reasons & AT_BORDER:
            self.feed(b"", now_ms)

    # ------------------------------------------------------------------------------- a Fetch answered with nothing

    @property
    def answerable(self) -> bool:
        """What waits is a Fetch, and there to its end."""
        held = self.splitter.release()
        self.splitter.keep(held)
        return answerable(self._served, held)

    def answer_empty(self, throttle_ms: int) -> bytes:
        """Take the Fetch that waits out of what is held, and return its answer without data."""
        held = self.splitter.release()
        size, key_version, _, _ = _unpack(held)
        frame = held[: 4 + size]
        if len(held) > len(frame):
            self.splitter.keep(held[len(frame) :])
        return self._fetches.answer_empty(self._served[key_version], frame, throttle_ms)

    # ------------------------------------------------------------------------------------------- whose they are

    def set_broker(self, broker_id: int) -> None:
        """Charge for the broker of that node id from now on (-1 while it is not known): quotas are per broker."""
        self.sender.set_broker(broker_id)
        self._forget_prefixes()

    @property
    def user(self) -> str:
        """Whom requests are charged to from now on."""
        return self.sender.user

    def identify(self, user: str) -> None:
        """Charge the requests that follow to ``user``; those in flight stay with whom they were charged to."""
        self.sender.identify(user)
        self._forget_prefixes()

    @property
    def restricted(self) -> bool:
        """Who the client is has not been proved yet, where it has to be."""
        return self._served is not self._rules.served

    def restrict(self) -> None:
        """Take small requests only, until the broker has answered an ordinary one: then the client is known."""
        self._served = self._rules.served_before_authentication
        self.splitter.limit = self._rules.unauthenticated_request_limit
        self.sender.forget()
        self._forget_prefixes()

    def lift_restriction(self) -> None:
        """Take requests of any size that the limits allow."""
        self._served = self._rules.served
        self.splitter.limit = self._rules.request_limit

    def _forget_prefixes(self) -> None:
        self._produces.prefix.forget()
        self._fetches.forget()

    def leave(self) -> None:
        """Give back what the connection, which is over, has taken; nothing is charged that never came."""
        if self._body is not None:
            self._body.leave(self.splitter.remaining)
            self._body = None
        self.sender.leave()
        self._forget_prefixes()

    # -------------------------------------------------------------------------------------- stopping and going on

    def stop(self, reasons: int) -> None:
        """Add ``reasons`` not to read; the stop takes hold at the next frame border."""
        self.reasons |= reasons
        if not self.splitter.remaining or reasons & WITHIN:
            self._pause()

    def go(self, reasons: int, now_ms: int) -> None:
        """Take ``reasons`` away; what was held is fed again and the client is read again where none forbids it."""
        self.reasons &= ~reasons
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
