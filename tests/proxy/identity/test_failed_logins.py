from structlog.testing import capture_logs

from proxy.identity.failed_logins import FailedLogins
from proxy.runtime.log_lines import MINUTE_MS
from tests.proxy.playbook import Play, authenticate, authenticate_answer, frame, handshake, handshake_answer


def note(logins: FailedLogins, user: str | None, peer: str, now_ms: int = 0) -> list[dict[str, object]]:
    with capture_logs() as logs:
        logins.log("SASL", "PLAIN", user, peer, now_ms)
    return [dict(line) for line in logs]


def test_failed_logins_are_logged_once_a_minute_per_host() -> None:
    logins = FailedLogins()
    (line,) = note(logins, "alice", "10.0.0.1:5")
    assert (line["event"], line["claimed_user"], line["peer"]) == ("login failed", "alice", "10.0.0.1:5")
    assert (line["listener"], line["mechanism"]) == ("SASL", "PLAIN")
    assert note(logins, "bob", "10.0.0.1:6") == []
    assert len(note(logins, None, "10.0.0.2:6")) == 1
    with capture_logs() as logs:
        logins.flush(MINUTE_MS)
    assert [(each["event"], each["of"], each["number"]) for each in logs] == [("more logins failed", "10.0.0.1", 1)]
    assert len(note(logins, "alice", "10.0.0.1:7", MINUTE_MS)) == 1


def test_a_name_of_any_length_is_cut() -> None:
    (line,) = note(FailedLogins(), "ü" * 100_000, "10.0.0.1:5")
    assert len(str(line["claimed_user"])) <= 128


def test_login_outcome_is_noted_with_claimed_user() -> None:
    for error_code in (0, 58):
        play = Play(authenticated=False)
        play.from_client(handshake(1, "PLAIN"))
        play.from_broker(handshake_answer(1))
        play.from_client(authenticate(2, b"\0alice\0secret"))
        play.from_broker(authenticate_answer(2, error_code=error_code))
        assert play.outcomes == [("PLAIN", not error_code)]
        assert play.claimed == ["alice"]


def test_raw_login_ended_by_broker_is_noted_with_claimed_user() -> None:
    play = Play(authenticated=False)
    play.from_client(handshake(1, "PLAIN", version=0))
    play.from_broker(handshake_answer(1))
    play.from_client(frame(b"\0alice\0secret"))
    play.session.broker_lost()
    assert (play.outcomes, play.claimed) == ([("PLAIN", False)], ["alice"])


def test_refused_handshake_is_noted_without_claimed_user() -> None:
    play = Play(authenticated=False)
    play.from_client(handshake(1, "OTHER"))
    play.from_broker(handshake_answer(1, 33))
    assert (play.outcomes, play.claimed) == ([("none accepted", False)], [None])
