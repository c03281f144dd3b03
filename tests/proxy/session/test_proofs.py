"""Who logs in by a mechanism that cannot be followed: nothing passes uncharged, and nobody is shut out."""

from collections.abc import Callable

import pytest

from proxy.identity.principal import of_mechanism
from quotas.engine import Engine, Window
from quotas.entities import ANONYMOUS, Default, Entity
from quotas.policy import Policy
from tests.proxy.playbook import (
    KIB,
    PRODUCER,
    QUESTION,
    Play,
    authenticate,
    authenticate_answer,
    frame,
    handshake,
    handshake_answer,
    list_offsets,
    list_offsets_answer,
    produce,
    produce_answer,
    request,
    serves,
    throttle_of,
)

SLOW = Policy({Entity(user=Default.DEFAULT): {PRODUCER: KIB}})
MECHANISM = "CUSTOM"
LARGE = 20 * KIB


def login(play: Play, mechanism: str = MECHANISM) -> None:
    play.from_client(handshake(1, mechanism))
    play.from_broker(handshake_answer(1))
    play.from_client(authenticate(2, b"whatever it is"))
    play.from_broker(authenticate_answer(2, b"as it was"))


def raw_login(play: Play, mechanism: str = "GSSAPI") -> None:
    play.from_client(handshake(1, mechanism, version=0))
    play.from_broker(handshake_answer(1))
    for token in (b"\x60\x82ticket", b""):
        play.from_client(frame(token))
        play.from_broker(frame(b"token"))
    play.from_client(frame(b"\5\4last"))


def nothing(_: Play) -> None:
    """Do not log in, at brokers that do not ask for it."""


LOGINS = pytest.mark.parametrize(
    ("log_in", "user"),
    [(login, of_mechanism(MECHANISM)), (raw_login, of_mechanism("GSSAPI")), (nothing, ANONYMOUS)],
    ids=["SaslAuthenticate", "raw tokens", "no login"],
)


def charged(engine: Engine, now_ms: int) -> dict[str, float]:
    return {usage.user: usage.charged_total for usage in engine.usage(now_ms) if usage.charged_total}


@LOGINS
def test_a_connection_for_each_produce_gains_nothing(log_in: Callable[[Play], None], user: str) -> None:
    engine = Engine(SLOW, Window())
    first, second = (Play(authenticated=False, engine=engine, policy=SLOW) for _ in range(2))
    for play in (first, second):
        log_in(play)
        assert play.from_client(produce(3, LARGE)) == QUESTION
    assert serves(first) == produce(3, LARGE)
    assert throttle_of(first.from_broker(produce_answer(3))) > 5000
    first.session.close()
    assert serves(second) == b"", "the counter is in debt, and it is the same"
    second.loop.advance(8000)
    assert second.broker.take() == b""
    second.loop.advance(20_000)
    assert second.broker.take() == produce(3, LARGE)
    assert charged(engine, second.loop.now_ms) == {user: 2 * (len(produce(3, LARGE)) - 4)}


@LOGINS
def test_the_first_request_may_be_of_any_size(log_in: Callable[[Play], None], user: str) -> None:
    play = Play(authenticated=False)
    log_in(play)
    large = produce(3, 100 * play.worker.unauthenticated_request_limit)
    begun = play.from_client(large[:500])
    assert begun == QUESTION
    assert serves(play) + play.from_client(large[500:]) == large
    assert (play.user, play.rejected) == (user, [])


@LOGINS
def test_acks_0_producer_is_charged_and_kept_after_proof(log_in: Callable[[Play], None], user: str) -> None:
    play = Play(authenticated=False, policy=SLOW)
    log_in(play)
    one = produce(3, 100, acks=0)
    assert play.from_client(one + one) == QUESTION
    assert serves(play) == one + one
    play.session.overdue(play.loop.now_ms)
    assert not play.session.closed
    assert charged(play.engine, play.loop.now_ms) == {user: 2 * (len(one) - 4)}


def test_produce_held_for_proof_is_forwarded_after_half_close() -> None:
    play = Play(authenticated=False)
    login(play)
    one = produce(3, 100, acks=0)
    play.from_client(one)
    play.session.client_finished()
    assert not play.session.closed
    assert serves(play) == one
    assert play.session.closed


def test_idle_client_after_login_is_proved_and_kept() -> None:
    play = Play(authenticated=False)
    login(play)
    play.session.overdue(play.loop.now_ms)
    assert play.broker.take() == QUESTION
    assert serves(play) == b""
    assert (play.user, play.session.closed) == (of_mechanism(MECHANISM), False)


def test_client_in_unfinished_login_is_closed_and_uncharged() -> None:
    """A broker's answer without an error is no proof where more rounds may follow: it is the broker that is asked."""
    play = Play(authenticated=False, policy=SLOW)
    login(play)
    assert play.from_client(produce(3, LARGE)) == QUESTION
    assert serves(play, authenticated=False) == b""
    assert (play.session.closed, charged(play.engine, play.loop.now_ms)) == (True, {})
    assert [(side, error.cause) for side, error in play.rejected] == [("client", "not_authenticated")]
    idle = Play(authenticated=False)
    login(idle)
    idle.session.overdue(play.loop.now_ms)
    idle.broker.take()
    serves(idle, authenticated=False)
    assert idle.session.closed


def test_login_of_several_rounds_is_proved_and_served() -> None:
    play = Play(authenticated=False)
    login(play)
    play.from_client(authenticate(3, b"second"))
    play.from_broker(authenticate_answer(3))
    play.from_client(list_offsets(4))
    assert (serves(play), play.user) == (list_offsets(4), of_mechanism(MECHANISM))


def test_a_lifetime_is_told_at_the_end_alone() -> None:
    play = Play(authenticated=False)
    play.from_client(handshake(1, MECHANISM))
    play.from_broker(handshake_answer(1))
    play.from_client(authenticate(2, b"x"))
    play.from_broker(authenticate_answer(2, b"y", lifetime_ms=60_000))
    assert (play.user, play.session.authenticated) == (of_mechanism(MECHANISM), True)
    assert play.session.sasl.deadline_ms == play.loop.now_ms + 58_000


def test_proof_answer_in_pieces_is_not_forwarded_to_client() -> None:
    play = Play(authenticated=False)
    login(play)
    play.from_client(list_offsets(3))
    answer = frame(QUESTION[8:12] + bytes(3000))
    for at in range(len(answer)):
        assert play.from_broker(answer[at : at + 1]) == b""
    assert play.broker.take() == list_offsets(3)
    assert play.from_broker(list_offsets_answer(3)) == list_offsets_answer(3)


def test_request_before_the_proof_is_answered_first() -> None:
    """ApiVersions in front of it in one chunk: the question stands behind it, as its answer does."""
    greeting = request(18, 0, 3)
    play = Play(authenticated=False)
    login(play)
    assert play.from_client(greeting + list_offsets(4)) == greeting
    assert play.from_broker(frame(b"\0\0\0\3" + bytes(6)))
    assert play.broker.take() == QUESTION
    assert serves(play) == list_offsets(4)


def test_raw_tokens_and_a_request_sent_at_once_are_not_matched_with_each_other() -> None:
    play = Play(authenticated=False, policy=SLOW)
    play.from_client(handshake(1, "GSSAPI", version=0))
    play.from_broker(handshake_answer(1))
    play.from_client(frame(b"\x60\x82ticket") + frame(b"") + produce(3, LARGE))
    play.from_broker(frame(b"token"))
    assert play.session.closed
    assert charged(play.engine, play.loop.now_ms) == {}
