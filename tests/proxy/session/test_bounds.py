"""Playbooks of peers that send more than is good: what one session holds, and how much it does at once, is bounded."""

import tracemalloc
from collections.abc import Callable
from struct import pack, unpack_from

import pytest

from protocol import frames, headers
from protocol.errors import Cause
from proxy.session import client_identity, request_stream
from proxy.session.exchange import MAX_IN_FLIGHT
from proxy.session.policies import produce as produce_gate
from tests.proxy.playbook import (
    KIB,
    QUESTION,
    FakeWire,
    Play,
    fetch,
    fetch_answer,
    frame,
    handshake,
    handshake_answer,
    heartbeat,
    heartbeat_answer,
    list_offsets,
    list_offsets_answer,
    produce,
    produce_answer,
    request,
    serves,
)

CHUNK_BYTES = 256_000
"""What a loop reads at once."""
HIGH_WATER_BYTES = 4 * KIB
FUTURE_VERSION = 99

Make = Callable[[int], bytes]


def future(number: int) -> bytes:
    """Return the smallest request there is: 14 bytes, and the proxy answers it itself."""
    return request(18, FUTURE_VERSION, number, client_id=b"")


def correlation_ids(data: bytes) -> list[int]:
    """Return those of the whole frames that ``data`` is: of answers, or of requests."""
    found, at = [], 0
    while at < len(data):
        found.append(unpack_from(">i", data, at + 4)[0])
        at += 4 + unpack_from(">i", data, at)[0]
    return found


class LazyClient(FakeWire):
    """A client that takes no answer before it is told to: its transport says so above a mark."""

    def __init__(self, play: Play) -> None:
        super().__init__()
        self._play = play

    def write(self, data: bytes) -> None:
        super().write(data)
        if self.untaken > HIGH_WATER_BYTES:
            self._play.session.blocked("client", True)

    @property
    def untaken(self) -> int:
        return sum(map(len, self.sent))


class LazyPlay(Play):
    """A session with such a client."""

    def __init__(self, *, authenticated: bool) -> None:
        super().__init__(authenticated=authenticated)
        self.lazy = LazyClient(self)
        self.session.client = self.lazy
        self.session.answers.write = self.lazy.write


class TestInFlight:
    @pytest.mark.parametrize(
        ("ask", "answer"),
        [
            (list_offsets, list_offsets_answer),
            (lambda number: list_offsets(number, 100), list_offsets_answer),
            (heartbeat, heartbeat_answer),
            (lambda number: produce(number, 0), produce_answer),
            (fetch, lambda number: fetch_answer(number, 0)),
            (
                lambda number: (list_offsets, heartbeat)[number % 2](number),
                lambda number: (list_offsets_answer, heartbeat_answer)[number % 2](number),
            ),
        ],
        ids=["forwarded", "longer ones", "read one by one", "produce", "fetch", "mixed"],
    )
    @pytest.mark.parametrize("authenticated", [True, False], ids=["authenticated", "before authentication"])
    def test_chunk_of_requests_is_forwarded_up_to_in_flight_limit(
        self, ask: Make, answer: Make, authenticated: bool
    ) -> None:
        play = Play(authenticated=authenticated)
        count = CHUNK_BYTES // len(ask(0))
        data = b"".join(ask(number) for number in range(count))
        asked = play.from_client(data)
        if not authenticated:
            assert asked == QUESTION
            asked = serves(play)
        answered = 0
        while answered < count:
            play.loop.advance(0)
            asked += play.broker.take()
            in_flight = len(play.session.in_flight)
            assert 0 < in_flight <= MAX_IN_FLIGHT
            assert play.client.paused == (answered + in_flight < count)
            play.from_broker(b"".join(answer(number) for number in range(answered, answered + in_flight)))
            answered += in_flight
        assert asked == data
        assert not play.client.paused
        assert not play.rejected

    def test_last_request_within_in_flight_limit_is_forwarded_whole(self) -> None:
        play = Play()
        play.from_client(b"".join(list_offsets(number) for number in range(MAX_IN_FLIGHT - 1)))
        play.loop.advance(0)
        play.broker.take()
        whole = list_offsets(MAX_IN_FLIGHT - 1, 500)
        assert play.from_client(whole[:100]) == whole[:100]
        assert not play.client.paused
        assert play.from_client(whole[100:] + list_offsets(7)) == whole[100:]
        assert play.client.paused

    def test_requests_without_answers_do_not_keep_others_waiting(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(produce_gate, "_MAX_UNANSWERED", 10)
        play = Play()
        data = b"".join(produce(number, 0, acks=0) for number in range(25))
        assert len(correlation_ids(play.from_client(data))) == 10
        assert play.client.paused
        play.loop.advance(0)
        assert len(correlation_ids(play.broker.take())) == 15
        assert not play.client.paused


class TestLocalAnswers:
    @pytest.mark.parametrize("authenticated", [True, False], ids=["authenticated", "before authentication"])
    def test_client_that_takes_no_local_answers_is_not_read(self, authenticated: bool) -> None:
        play = LazyPlay(authenticated=authenticated)
        count = CHUNK_BYTES // len(future(0))
        play.from_client(b"".join(future(number) for number in range(count)))
        play.loop.advance(0)
        assert play.lazy.paused
        assert play.lazy.untaken < HIGH_WATER_BYTES + 100
        taken: list[int] = []
        while play.lazy.sent:
            taken += correlation_ids(play.lazy.take())
            play.session.blocked("client", False)
            play.loop.advance(0)
            assert play.lazy.untaken < HIGH_WATER_BYTES + 100
        assert taken == list(range(count))
        assert not play.lazy.paused

    def test_local_answers_behind_broker_answer_wait_for_blocked_client(self) -> None:
        play = LazyPlay(authenticated=True)
        play.from_client(list_offsets(1) + future(2) + future(3))
        play.from_broker(list_offsets_answer(1, HIGH_WATER_BYTES))
        assert play.lazy.paused
        assert correlation_ids(play.lazy.take()) == [1]
        play.session.blocked("client", False)
        assert correlation_ids(play.lazy.take()) == [2, 3]

    def test_local_answers_of_one_chunk_are_made_in_bounded_turns(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(request_stream, "_MAX_AT_ONCE", 10)
        play = Play()
        play.session.requests.feed(b"".join(future(number) for number in range(25)), 0)
        assert len(correlation_ids(play.client.take())) == 10
        assert play.client.paused
        play.loop.advance(0)
        assert len(correlation_ids(play.client.take())) == 15
        assert not play.client.paused

    def test_a_session_that_ends_while_it_waits_for_its_turn_does_nothing_more(self) -> None:
        play = Play()
        play.from_client(b"".join(future(number) for number in range(1000)))
        play.session.close()
        play.loop.advance(0)
        assert not play.rejected

    def test_half_closed_client_gets_every_local_answer(self) -> None:
        play = Play()
        play.from_client(b"".join(future(number) for number in range(1000)))
        play.session.client_finished()
        play.loop.advance(0)
        assert correlation_ids(play.client.take()) == list(range(1000))
        assert play.client.closed


@pytest.mark.uncompiled("calls are counted inside")
def test_held_logins_are_not_parsed_again_with_each_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk of logins, of which one at a time is forwarded: of those behind it only the next ones are looked at."""
    seen = 0
    split = frames.FrameSplitter.split

    def counted(self: frames.FrameSplitter, data: bytes, most: int = frames.MANY) -> object:
        nonlocal seen
        chunk, start, heads = split(self, data, most)
        seen += len(heads)
        return chunk, start, heads

    monkeypatch.setattr(frames.FrameSplitter, "split", counted)
    play = Play(authenticated=False)
    count = 5000
    play.from_client(b"".join(handshake(number, "OTHER") for number in range(count)))
    for number in range(20):
        play.from_broker(handshake_answer(number, 33))
    assert seen <= 20 * 300


class TestByteByByte:
    TOKEN = b"x" * 900

    def drip(self, feed: Callable[[bytes], bytes], data: bytes) -> bytes:
        return b"".join(feed(data[at : at + 1]) for at in range(len(data)))

    @pytest.mark.uncompiled("calls are counted inside")
    @pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "GSSAPI"])
    def test_raw_tokens_are_put_together_once(self, mechanism: str, monkeypatch: pytest.MonkeyPatch) -> None:
        joined = 0
        release = frames.FrameSplitter.release

        def counted(self: frames.FrameSplitter) -> bytes:
            nonlocal joined
            joined += self.held_bytes
            return release(self)

        play = Play(authenticated=False)
        play.from_client(handshake(1, mechanism, version=0))
        play.from_broker(frame(pack(">ihi", 1, 0, 0)))
        monkeypatch.setattr(frames.FrameSplitter, "release", counted)
        token = frame(self.TOKEN)
        assert self.drip(play.from_client, token) == token
        assert self.drip(play.from_broker, token) == token
        assert not play.rejected
        assert joined < 3 * len(token)

    @pytest.mark.parametrize("limit", [900, 899])
    def test_a_raw_token_has_a_limit_in_both_directions(self, limit: int) -> None:
        play = Play(authenticated=False)
        play.from_client(handshake(1, "SCRAM-SHA-256", version=0))
        play.from_broker(frame(pack(">ihi", 1, 0, 0)))
        play.from_client(frame(b"n,,n=alice,r=x"))
        play.worker.unauthenticated_request_limit = limit
        play.from_broker(frame(self.TOKEN)[:4])
        assert bool(play.rejected) == (limit < len(self.TOKEN))

    @pytest.mark.uncompiled("calls are counted inside")
    @pytest.mark.parametrize(
        "whole",
        [
            request(3, 12, 1, b"\0\0" + bytes(100), b"c" * 32_000),
            request(3, 12, 1, b"\xe8\x07" + b"\1\0" * 1000 + bytes(100), b"c" * 9000),
            produce(1, 100, client_id=b"c" * 32_000),
        ],
        ids=["client-id", "tags", "produce"],
    )
    def test_a_header_is_read_a_few_times(self, whole: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
        read = 0

        def counted(*arguments: object) -> int:
            nonlocal read
            read += 1
            return headers.request_body_offset(*arguments)  # type: ignore[arg-type]  # as they came

        monkeypatch.setattr(client_identity, "request_body_offset", counted)
        play = Play()
        assert self.drip(play.from_client, whole) == whole
        assert read <= 16  # twice as much each time

    @pytest.mark.long
    def test_held_request_bytes_take_no_more_memory_than_received(self) -> None:
        play = Play(authenticated=False)
        play.worker.unauthenticated_request_limit = play.session.requests.splitter.limit = 10**6
        login = request(36, 0, 1, pack(">i", 300_000) + bytes(300_000))
        pieces = [login[at : at + 1] for at in range(200_000)]
        tracemalloc.start()
        for piece in pieces:
            play.session.requests.feed(piece, 0)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2 * len(pieces)


def test_find_coordinator_has_a_limit_of_its_own() -> None:
    play = Play()
    limit = play.worker.find_coordinator_limit
    assert play.from_client(request(10, 4, 1, b"\0" + bytes(limit - 12 - 1 - 2)))
    play.from_client(request(10, 4, 2, bytes(limit)))
    ((side, error),) = play.rejected
    assert (side, error.cause) == ("client", Cause.FRAME_TOO_LARGE)
    assert "limits.find_coordinator" in str(error)
