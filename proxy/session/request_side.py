"""From the client to the broker: headers read, produce charged, fetches capped, the client stopped when it must wait.

Of a request only the header is read. A chunk of whole frames that need nothing is forwarded in one write, as it
came. A client that must wait is stopped at a frame border: what it sent beyond stays in the splitter (bounded by
the chunk) and its socket is not read. Sans-I/O: bytes and time come in, bytes go out through a ``Wire``.
"""

from collections.abc import Callable

from protocol.api_versions import unsupported_version_answer
from protocol.errors import Cause, ProtocolError
from protocol.frames import REQUEST_HEAD, Head
from protocol.sasl import raw_token_end
from proxy.identity.sasl import State
from proxy.session.body import Body
from proxy.session.in_flight import API, METER, RAW_TOKEN, InFlight, expect, tell
from proxy.session.pair import Pair
from proxy.session.protected_topics import Guard
from proxy.session.reasons import (
    ANSWERING,
    AT_BORDER,
    CROWDED,
    HELD_UP,
    MIDWAY,
    RAW_TOKENS,
    WITHIN,
)
from proxy.session.request_prefix import AFTER_CORRELATION_ID, NONE
from proxy.session.request_reader import ACKS_0, RequestReader
from proxy.session.serving import API_VERSIONS_KEY, PRODUCE
from proxy.session.waits import Waits, What
from proxy.session.wires import Wire, dropped
from proxy.usage.meters import ListenerMeters

MAX_IN_FLIGHT = 1024
"""A broker works on one request of a connection at a time, and the Java client sends five ahead."""

_MAX_AT_ONCE = 256
"""Requests that are read one by one before others have their turn: a millisecond. A chunk has room for 18,000."""

_unpack = REQUEST_HEAD.unpack_from
_LEAST_BYTES = REQUEST_HEAD.size - 4
_MAX_SMALL_FRAME_BYTES = 64 * 1024
GSSAPI_TOKEN = 0x60
"""What a GSSAPI token begins with (RFC 2743 §3.1); no api key does."""


class RequestSide(RequestReader):
    """What comes from one client, until it is with the broker."""

    __slots__ = ("_client", "_paused", "write")

    def __init__(self, pair: Pair, in_flight: InFlight, waits: Waits, meters: ListenerMeters, user: str) -> None:
        super().__init__(pair, in_flight, waits, meters, user)
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
                    self._came(count, now_ms, finished=count == remaining)
                if count == remaining and self.reasons:
                    self._pause()
                return
            if self._body is not None:
                self._came(remaining, now_ms, finished=True)
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
        prefix = self._produce_prefix
        number = prefix.number
        if number != NONE and prefix.generation != self._rules.engine.generation:
            number = NONE
        limit = self.splitter.limit
        in_flight = self._in_flight
        served = self._served
        meter = self._meter
        client_id_bytes = self._client_id
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
                    or prefix.bound.shut
                    or prefix.width > size
                    or not data.startswith(prefix.beginning, position + AFTER_CORRELATION_ID)
                ):
                    break
                prefix.api.requests += 1
                prefix.meter.produce_requests += 1
                prefix.meter.produce_bytes += size
                throttle_ms = prefix.bound.charge(size, now_ms)
                if throttle_ms or data.startswith(ACKS_0, field):
                    missing = position + 4 + size - end
                    self.splitter.remaining = max(missing, 0)  # a mute waits for the frame's end
                    self._charged(prefix, correlation_id, throttle_ms, data.startswith(ACKS_0, field), missing, now_ms)
                    if self.reasons & AT_BORDER:
                        return position + 4 + size
                else:
                    in_flight.append(
                        (correlation_id, prefix.api.on_answer, prefix.api, 0, 0, None, prefix.meter, now_ms)
                    )
            else:
                api = served.get(key_version)
                if (
                    api is None
                    or api.on_request
                    or not data.startswith(client_id_bytes, position + AFTER_CORRELATION_ID)
                ):
                    break
                api.requests += 1
                meter.other_requests += 1
                meter.other_bytes += 4 + size
                in_flight.append((correlation_id, api.on_answer, api, 0, 0, None, meter, now_ms))
            position += 4 + size
        if position > end and self._body is None:
            self._begin_body(position - end)
        return position

    def _taken(self, missing: int) -> None:
        """Take note of one more request, of which so much is still to come."""
        if missing > 0 and self._body is None:
            self._begin_body(missing)
        if len(self._in_flight) >= MAX_IN_FLIGHT:
            self.reasons |= CROWDED

    def _begin_body(self, missing: int) -> None:
        """Count the last request, of which so much is still to come, as far as it has come."""
        entry = self._in_flight[-1]
        charged = entry[API].on_request == PRODUCE and not self.restricted
        bound = self._produce_prefix.bound if charged else None
        self._body = Body(entry[METER], bound, None if bound is None else bound.mark, entry)
        self._body.count(-missing)

    def _came(self, size: int, now_ms: int, *, finished: bool) -> None:
        """Count and charge what has come of the request under way."""
        body = self._body
        if body is None:
            return
        body.count(size)
        if body.bound is not None:
            self._go_ahead(body.bound, size, now_ms)
        throttle_ms = body.charge(size, now_ms)
        if finished:
            self._body = None
            body.leave(0)
        if body.bound is None or body.mark is not None or not throttle_ms:
            return
        if finished:
            self._told(body, self._pair.throttle(body.bound, body.meter, throttle_ms, now_ms), now_ms)
            return
        bound = body.bound.live
        if bound.streamer is None and not bound.owed_ms(now_ms):
            bound.streamer = body  # one is let through to its end; what it takes beyond the limit is owed by all
        bound.owe(throttle_ms, now_ms)
        if bound.streamer is not body and not self._waits.ask(What.BODY, bound, body.meter, size, now_ms):
            self.stop(MIDWAY)

    def _told(self, body: Body, throttle_ms: int, now_ms: int) -> None:
        """Let the answer to a request that was charged as it came tell its throttle time."""
        if not throttle_ms or body.entry is None or self._in_flight[-1] != body.entry:
            return
        self._in_flight[-1] = tell(body.entry, throttle_ms, now_ms)

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
            elif not self.read(api, chunk, position, head, now_ms):
                stop = position
                break
            position += 4 + head[0]
            self._taken(position - len(chunk))
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
        if self._edits:
            edited = bytearray(chunk)
            for offset, replacement in self._edits:
                edited[offset : offset + len(replacement)] = replacement
            self._edits = ()
            chunk = bytes(edited)
        self.write(chunk if start == 0 and stop == len(chunk) else chunk[start:stop])

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
            self._meter.other_bytes += wanted
            self._in_flight.append(expect(0, RAW_TOKEN, self._meter, now_ms))
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
