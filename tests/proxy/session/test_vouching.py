"""A session at an address whose node the proxy could not ask: it may log in, and the question goes before all else."""

from protocol.errors import Cause, ProtocolError
from tests.proxy.playbook import (
    QUESTION,
    Play,
    authenticate,
    authenticate_answer,
    handshake,
    handshake_answer,
    list_offsets,
    serves,
)


def play_of(*outcomes: ProtocolError | None) -> tuple[Play, list[bytes]]:
    """Return a session that takes these outcomes of its question, and the answers that it passed on."""
    asked: list[bytes] = []
    left = list(outcomes)

    def vouch(answer: bytes) -> ProtocolError | None:
        asked.append(answer)
        return left.pop(0)

    play = Play(authenticated=False, connected=False)
    play.session.connected(play.broker, 1, None, vouch)
    return play, asked


def log_in(play: Play) -> bytes:
    """Log in by PLAIN; return what went to the broker behind the login."""
    play.from_client(handshake(1, "PLAIN"))
    play.from_broker(handshake_answer(1))
    play.from_client(authenticate(2, b"\0alice\0secret"))
    play.from_broker(authenticate_answer(2, b""))
    return play.broker.take()


def test_question_follows_the_login_at_once_and_precedes_the_first_request() -> None:
    """A client that logs in and is idle then is no client without a login."""
    play, asked = play_of(None)
    assert log_in(play) == QUESTION
    assert play.from_client(list_offsets(3)) == b""
    assert serves(play) == list_offsets(3)
    assert len(asked) == 1
    assert play.session.authenticated


def test_session_at_a_node_of_another_cluster_is_closed_before_its_first_request() -> None:
    play, _ = play_of(ProtocolError(Cause.OTHER_CLUSTER, "it belongs to another cluster"))
    log_in(play)
    play.from_client(list_offsets(3))
    assert serves(play) == b""
    assert play.session.closed
    assert [(side, error.cause) for side, error in play.rejected] == [("broker", Cause.OTHER_CLUSTER)]
