"""Requests that the proxy answers itself, at once or later: each in its turn, and none of them at the broker."""

from struct import pack

import pytest

from protocol.errors import Cause, ProtocolError
from proxy.session.serving import Done, LocalRequest
from tests.proxy.playbook import (
    QUESTION,
    Play,
    frame,
    list_offsets,
    list_offsets_answer,
    produce,
    produce_answer,
    request,
)

DESCRIBE_CLIENT_QUOTAS = 48
LIMIT = 500


class Slow:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[LocalRequest] = []
        self.done: list[Done] = []

    def most_bytes(self, api_key: int, user: str) -> int:
        return LIMIT

    def answer(self, request: LocalRequest, done: Done) -> bytes | None:
        self.asked.append(request)
        self.done.append(done)
        return None


class Quick(Slow):
    def answer(self, request: LocalRequest, done: Done) -> bytes | None:
        super().answer(request, done)
        return own(request.correlation_id)


def asked(correlation_id: int, size: int = 20) -> bytes:
    return request(DESCRIBE_CLIENT_QUOTAS, 0, correlation_id, bytes(size))


def own(correlation_id: int) -> bytes:
    return frame(pack(">i", correlation_id) + b"own")


@pytest.fixture(params=[Slow, Quick])
def answerer(request: pytest.FixtureRequest) -> Slow:
    made: Slow = request.param()
    return made


def play_with(answerer: Slow, *, authenticated: bool = True) -> Play:
    return Play(answerers={DESCRIBE_CLIENT_QUOTAS: answerer}, authenticated=authenticated)


def finish(answerer: Slow) -> None:
    if not isinstance(answerer, Quick):
        answerer.done[-1](own(answerer.asked[-1].correlation_id))


@pytest.mark.parametrize("step", [1, 7, 10**6])
def test_local_requests_are_answered_in_order_and_not_forwarded(answerer: Slow, step: int) -> None:
    play = play_with(answerer)
    sent = list_offsets(1) + asked(2) + produce(3, 100) + asked(4) + asked(5)
    to_broker = b"".join(play.from_client(sent[at : at + step]) for at in range(0, len(sent), step))
    assert to_broker == list_offsets(1)
    assert not answerer.asked, "the broker has still to answer what came before"
    got = play.from_broker(list_offsets_answer(1))
    finish(answerer)
    assert got + play.client.take() == list_offsets_answer(1) + own(2)
    assert play.broker.take() == produce(3, 100)
    got = play.from_broker(produce_answer(3))
    finish(answerer)
    finish(answerer)
    assert got + play.client.take() == produce_answer(3) + own(4) + own(5)
    assert [request.correlation_id for request in answerer.asked] == [2, 4, 5]
    assert [request.frame for request in answerer.asked] == [asked(2), asked(4), asked(5)]
    assert not play.client.paused


def test_answerer_gets_user_and_peer_and_request_is_metered(answerer: Slow) -> None:
    play = play_with(answerer)
    play.from_client(asked(1))
    finish(answerer)
    (seen,) = answerer.asked
    assert (seen.user, seen.client_id, seen.peer) == ("ANONYMOUS", "app", "10.0.0.1:5")
    assert int.from_bytes(seen.frame[4:8]) == DESCRIBE_CLIENT_QUOTAS << 16
    meter = play.session.identity.account.meter
    assert (meter.other_requests, meter.other_bytes, meter.bytes_out) == (1, len(asked(1)), len(own(1)))


def test_request_beyond_limit_of_answerer_closes_as_frame_too_large(answerer: Slow) -> None:
    play = play_with(answerer)
    play.from_client(asked(1, LIMIT)[:30])
    assert [(side, error.cause.value) for side, error in play.rejected] == [("client", "frame_too_large")]
    assert str(LIMIT) in str(play.rejected[0][1])


def test_local_request_is_answered_only_after_proof_of_login(answerer: Slow) -> None:
    play = play_with(answerer, authenticated=False)
    assert play.from_client(asked(1)) == QUESTION
    assert not answerer.asked
    play.from_broker(frame(QUESTION[8:12] + bytes(12)))
    assert (len(answerer.asked), play.broker.take()) == (1, b"")


class TestSlowAnswer:
    def test_slow_local_answer_pauses_reading_of_later_requests(self) -> None:
        play = play_with(answerer := Slow())
        assert play.from_client(asked(1) + list_offsets(2)) == b""
        assert play.client.paused
        assert play.from_client(list_offsets(3)) == b""
        finish(answerer)
        assert play.client.take() == own(1)
        assert play.broker.take() == list_offsets(2) + list_offsets(3)
        assert not play.client.paused

    def test_second_answer_to_local_request_is_dropped(self) -> None:
        play = play_with(answerer := Slow())
        play.from_client(asked(1))
        finish(answerer)
        finish(answerer)
        assert play.client.take() == own(1)

    def test_a_client_that_has_gone_is_not_answered(self) -> None:
        play = play_with(answerer := Slow())
        play.from_client(asked(1))
        play.session.close()
        finish(answerer)
        assert play.client.take() == b""

    @pytest.mark.parametrize("end", ["client_finished", "drain"])
    def test_ending_session_waits_for_slow_local_answer(self, end: str) -> None:
        play = play_with(answerer := Slow())
        play.from_client(asked(1))
        getattr(play.session, end)()
        assert not play.closed
        finish(answerer)
        assert play.client.take() == own(1)
        assert play.closed

    def test_blocked_client_delays_requests_behind_slow_answer(self) -> None:
        play = play_with(answerer := Slow())
        play.from_client(asked(1) + list_offsets(2))
        play.session.blocked("client", True)
        finish(answerer)
        assert play.broker.take() == b""
        play.session.blocked("client", False)
        assert play.broker.take() == list_offsets(2)

    def test_session_waiting_for_slow_answer_is_not_idle(self) -> None:
        play = play_with(answerer := Slow())
        play.from_client(asked(1))
        assert play.session.held
        finish(answerer)
        assert not play.session.held

    def test_request_found_malformed_by_answerer_closes_the_connection(self) -> None:
        play = play_with(answerer := Slow())
        play.from_client(asked(1) + list_offsets(2))
        answerer.done[-1](ProtocolError(Cause.BAD_BODY, "ends too early"))
        assert [(side, error.cause.value) for side, error in play.rejected] == [("client", "bad_body")]
        assert (play.broker.take(), play.client.take(), play.closed) == (b"", b"", 1)
        answerer.done[-1](own(1))

    def test_request_that_answerer_gives_up_aborts_the_connection(self) -> None:
        play = play_with(answerer := Slow())
        play.from_client(asked(1) + list_offsets(2))
        answerer.done[-1](None)
        assert (play.rejected, play.closed, play.client.aborted) == ([], 1, True)
        answerer.done[-1](None)

    def test_broker_lost_during_slow_answer_drops_that_answer(self) -> None:
        play = play_with(answerer := Slow())
        play.from_client(asked(1))
        play.session.broker_lost()
        finish(answerer)
        assert play.client.take() == b""
