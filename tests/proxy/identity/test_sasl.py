"""What the observer makes of a session: requests held, restrictions lifted, mutes that end before a deadline."""

from struct import pack

import pytest

from proxy.identity.principal import of_mechanism
from proxy.identity.sasl import MAX_READ_BYTES, LoginState
from quotas.entities import Entity
from quotas.policy import Policy
from tests.proxy.playbook import (
    PRODUCER,
    QUESTION,
    Play,
    authenticate,
    authenticate_answer,
    frame,
    handshake,
    handshake_answer,
    heartbeat,
    heartbeat_answer,
    list_offsets,
    produce,
    produce_answer,
    request,
    serves,
    throttle_of,
)

SLOW_BYTES_PER_S = 1024
SLOW_ALICE = Policy({Entity(user="alice"): {PRODUCER: SLOW_BYTES_PER_S}})
ALICE = b"\0alice\0alice-secret"
HUGE = 50_000


def logged_in(lifetime_ms: int = 0, **options: object) -> Play:
    play = Play(authenticated=False, policy=SLOW_ALICE, **options)  # type: ignore[arg-type]  # options of Play
    play.from_client(handshake(1, "PLAIN"))
    play.from_broker(handshake_answer(1))
    play.from_client(authenticate(2, ALICE))
    play.from_broker(authenticate_answer(2, lifetime_ms=lifetime_ms))
    return play


def test_a_quota_of_the_user_throttles() -> None:
    play = logged_in()
    play.from_client(produce(3, HUGE))
    assert throttle_of(play.from_broker(produce_answer(3))) > 1000
    assert play.client.paused


def test_requests_before_login_success_are_held_and_connection_closed() -> None:
    play = Play(authenticated=False)
    assert not play.session.authenticated
    assert logged_in().session.authenticated
    assert play.from_client(produce(1, HUGE)) == QUESTION
    assert play.from_client(list_offsets(2)) == b""
    assert serves(play, authenticated=False) == b""
    assert play.session.closed


def test_a_client_that_takes_too_long_is_closed_and_one_that_is_known_is_not() -> None:
    play, known = Play(authenticated=False), logged_in()
    play.session.overdue(play.loop.now_ms)
    known.session.overdue(play.loop.now_ms)
    assert (play.session.closed, known.session.closed) == (True, False)
    assert [error.cause for _, error in play.rejected] == ["authentication_timeout"]


@pytest.mark.parametrize("lifetime_ms", [10_000, 60_000])
def test_a_mute_ends_in_time_for_the_reauthentication(lifetime_ms: int) -> None:
    play = logged_in(lifetime_ms)
    play.from_client(produce(3, 10 * HUGE))  # worth minutes
    told_ms = throttle_of(play.from_broker(produce_answer(3)))
    assert lifetime_ms - 2000 <= told_ms < lifetime_ms
    play.loop.advance(told_ms)
    assert not play.client.paused
    assert play.from_client(handshake(4, "PLAIN")) == handshake(4, "PLAIN")


def reauthenticate(play: Play, lifetime_ms: int) -> None:
    play.from_client(handshake(5, "PLAIN"))
    play.from_broker(handshake_answer(5))
    play.from_client(authenticate(6, ALICE))
    play.from_broker(authenticate_answer(6, lifetime_ms=lifetime_ms))


def test_produce_debt_before_reauthentication_delays_produce_after_it() -> None:
    play = logged_in(10_000)
    play.from_client(produce(3, HUGE))
    play.from_broker(produce_answer(3))
    play.loop.advance(9_600)
    owed_ms = play.engine.resolve("alice", "app", PRODUCER, 1).owed_ms(play.loop.now_ms)
    assert owed_ms > 20_000
    reauthenticate(play, 100_000)
    assert play.from_client(produce(7, 10)) == b""
    play.loop.advance(owed_ms - 1)
    assert play.broker.take() == b""
    play.loop.advance(1)
    assert play.broker.take() == produce(7, 10)


@pytest.mark.parametrize(("waiting", "go"), [(1, 1), (3, 3), (4, 3)])
def test_produces_that_wait_at_the_deadline_go_if_they_are_little(waiting: int, go: int) -> None:
    """Of 1.5 seconds' worth each: the third one goes when three seconds' worth have gone, the fourth does not."""
    play = logged_in(60_000)
    play.from_client(heartbeat(3))  # so that it is not muted: its next Produce waits by itself
    play.from_broker(heartbeat_answer(3))
    play.loop.advance(play.session.sasl.deadline_ms - play.loop.now_ms - 10_000)
    play.from_client(produce(4, 31 * SLOW_BYTES_PER_S))
    play.from_broker(produce_answer(4))
    under_way = [produce(5 + number, 3 * SLOW_BYTES_PER_S // 2) for number in range(waiting)]
    assert play.from_client(b"".join(under_way)) == b""
    play.loop.advance(9_990)
    assert play.broker.take() == b""
    play.loop.advance(20)
    assert play.broker.take() == b"".join(under_way[:go])
    assert [error.cause for _, error in play.rejected] == ([] if go == waiting else ["held_too_long"])
    if go == waiting:  # and what they took is owed, too
        for number in range(waiting):
            play.from_broker(produce_answer(5 + number))
        reauthenticate(play, 60_000)
        assert play.from_client(produce(70, 10)) == b""


def test_little_passes_between_the_deadline_and_the_reauthentication() -> None:
    play = logged_in(10_000)
    play.from_client(produce(3, HUGE))
    play.from_broker(produce_answer(3))
    play.loop.advance(9_600)
    more = produce(4, 5 * SLOW_BYTES_PER_S)
    assert play.from_client(more + produce(5, 10)) == b""
    play.loop.advance(10)
    assert play.broker.take() == more
    assert [error.cause for _, error in play.rejected] == ["held_too_long"]


def test_a_claim_at_the_deadline_is_owed_as_far_as_it_came() -> None:
    """Sharers of the counter do not pay for 900 kB that never came."""
    play = logged_in(10_000)
    play.from_client(produce(3, HUGE))
    play.from_broker(produce_answer(3))
    play.loop.advance(9_600)
    counter = play.engine.resolve("alice", "app", PRODUCER, 1)
    owed_ms = counter.owed_ms(play.loop.now_ms)
    claim = produce(4, 900_000)[:1000]
    play.from_client(claim)
    play.loop.advance(10)
    assert play.broker.take() == claim
    assert counter.owed_ms(play.loop.now_ms) <= owed_ms + 1000 * len(claim) // SLOW_BYTES_PER_S
    rest = bytes(3 * SLOW_BYTES_PER_S)
    play.from_client(rest)  # it has come: it is owed, and no more follows
    play.from_client(rest)
    assert counter.owed_ms(play.loop.now_ms) > owed_ms + 2000


def test_a_lifetime_that_a_failed_login_announces_is_none() -> None:
    play = Play(authenticated=False, policy=SLOW_ALICE)
    play.from_client(handshake(1, "PLAIN"))
    play.from_broker(handshake_answer(1))
    play.from_client(authenticate(2, ALICE))
    play.from_broker(authenticate_answer(2, error_code=58, lifetime_ms=1))
    assert play.session.sasl.deadline_ms > 10**15


@pytest.mark.parametrize("version", [0, 1])
def test_a_broker_that_closes_instead_of_an_answer_has_refused(version: int) -> None:
    play = Play(authenticated=False)
    play.from_client(handshake(1, "PLAIN", version))
    play.from_broker(handshake_answer(1))
    play.from_client(frame(ALICE) if version == 0 else authenticate(2, ALICE))
    play.session.broker_lost()
    play.session.broker_lost()
    assert (play.outcomes, play.session.closed) == ([("PLAIN", False)], True)


def test_a_broker_that_closes_later_has_refused_nobody() -> None:
    play = logged_in()
    play.session.broker_lost()
    assert (play.outcomes, play.session.closed) == ([("PLAIN", True)], True)


def test_raw_first_token_without_handshake_begins_gssapi() -> None:
    play = Play(authenticated=False)
    token = frame(b"\x60\x82\2\x35" + bytes(50))
    assert play.from_client(token) == token
    assert (play.session.sasl.mechanism, play.session.sasl.raw, play.client.paused) == ("GSSAPI", True, False)
    assert play.from_broker(frame(b"answer")) == frame(b"answer")


def test_raw_gssapi_token_after_login_closes_the_connection() -> None:
    play = logged_in()
    play.from_client(frame(b"\x60\x82\2\x35" + bytes(50)))
    assert play.session.closed


@pytest.mark.parametrize(
    "broken",
    [
        request(17, 1, 1, pack(">h", 100) + b"PLAIN"),
        request(17, 1, 1, pack(">h", -1)),
        request(17, 1, 1),
        request(36, 1, 1, pack(">i", 100) + b"x"),
        request(36, 1, 1, pack(">i", -1)),
        request(36, 1, 1, b"\0\0"),
        frame(pack(">hhihc", 36, 2, 1, -1, b"\0") + b"\xff\xff\xff\xff\xff\xff"),
        frame(pack(">hhihc", 36, 2, 1, -1, b"\0") + b"\0"),
    ],
)
def test_broken_requests_close_the_connection(broken: bytes) -> None:
    play = Play(authenticated=False)
    play.from_client(broken)
    assert [error.cause for _, error in play.rejected] == ["bad_body"]
    assert "PLAIN" not in str(play.rejected)


@pytest.mark.parametrize("broken", [frame(pack(">i", 1)), frame(pack(">ib", 1, 0))])
def test_broken_answers_close_the_connection(broken: bytes) -> None:
    play = Play(authenticated=False)
    play.from_client(handshake(1, "PLAIN"))
    play.from_broker(broken)
    assert [(side, error.cause) for side, error in play.rejected] == [("broker", "bad_body")]


def test_a_request_in_pieces_is_passed_on_whole() -> None:
    play = Play(authenticated=False)
    login = handshake(1, "PLAIN")
    passed = [play.from_client(login[place : place + 1]) for place in range(len(login))]
    assert b"".join(passed) == login
    answer = handshake_answer(1)
    assert b"".join(play.from_broker(answer[place : place + 1]) for place in range(len(answer))) == answer


def test_a_half_close_after_the_last_raw_token_is_answered_and_then_closes() -> None:
    play = Play(authenticated=False)
    play.from_client(handshake(1, "PLAIN", version=0))
    play.from_broker(handshake_answer(1))
    play.from_client(frame(ALICE))
    play.session.client_finished()
    assert not play.session.closed
    play.from_broker(frame(b""))
    assert (play.session.closed, play.user) == (True, "alice")


def test_login_on_listener_without_sasl_names_the_user() -> None:
    play = Play()
    play.from_client(handshake(1, "PLAIN"))
    play.from_broker(handshake_answer(1))
    play.from_client(authenticate(2, ALICE))
    play.from_broker(authenticate_answer(2))
    assert (play.user, play.outcomes) == ("alice", [("PLAIN", True)])


def test_a_listener_without_sasl_takes_requests_of_any_size_again_after_the_first_answer() -> None:
    play = Play()
    play.from_client(handshake(1, "PLAIN"))
    play.from_broker(handshake_answer(1, error_code=34))
    assert play.session.sasl.state is LoginState.NONE
    assert play.from_client(produce(3, HUGE)) == QUESTION
    assert serves(play) == produce(3, HUGE)


def test_back_pressure_of_the_client_does_not_end_the_reading_of_tokens() -> None:
    play = Play(authenticated=False)
    play.from_client(handshake(1, "PLAIN", version=0))
    play.from_broker(handshake_answer(1))
    play.session.blocked("client", True)
    assert play.broker.paused
    play.session.blocked("client", False)
    assert not play.broker.paused
    play.from_client(frame(ALICE))
    play.from_broker(frame(b""))
    assert play.user == "alice"


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize(("size", "user"), [(MAX_READ_BYTES, "alice"), (MAX_READ_BYTES + 1, of_mechanism("PLAIN"))])
def test_a_token_of_any_size_passes_but_a_long_one_is_not_read(raw: bool, size: int, user: str) -> None:
    play = Play(authenticated=False)
    play.worker.unauthenticated_request_limit = play.session.requests.splitter.limit = 10**6
    token = b"\0alice\0".ljust(size, b"x")
    asked = frame(token) if raw else authenticate(2, token)
    play.from_client(handshake(1, "PLAIN", version=0 if raw else 1))
    play.from_broker(handshake_answer(1))
    assert play.from_client(asked) == asked
    play.from_broker(frame(b"") if raw else authenticate_answer(2))
    assert play.user == user
