"""Logins end after their time, with the token that they were given for, and when there are too many."""

from proxy.admin.logins import LOGIN_S, Logins


class Tokens:
    def __init__(self) -> None:
        self.token = b"first"
        self.now_s = 0.0
        self.logins = Logins(lambda: self.now_s)

    def who(self, login_id: str) -> str | None:
        name = self.logins.name_of(login_id)
        return name if self.logins.is_of(login_id, self.token) else None


def test_login_is_known_until_its_time_is_over() -> None:
    tokens = Tokens()
    login = tokens.logins.begin("alice", b"first")
    tokens.now_s = LOGIN_S - 1
    assert tokens.who(login) == "alice"
    tokens.now_s = LOGIN_S
    assert tokens.who(login) is None
    assert not tokens.logins._logins


def test_login_ends_with_its_token_for_good() -> None:
    for other in (b"second", b""):
        tokens = Tokens()
        login = tokens.logins.begin("alice", b"first")
        tokens.token = other
        assert tokens.who(login) is None
        tokens.token = b"first"
        assert tokens.who(login) is None


def test_login_is_forgotten_and_known_by_no_other_process() -> None:
    tokens = Tokens()
    login = tokens.logins.begin("alice", b"first")
    assert Logins().name_of(login) is None
    tokens.logins.end(login)
    assert tokens.who(login) is None
    assert tokens.who("") is None


def test_logins_are_bounded_and_the_oldest_ends() -> None:
    tokens = Tokens()
    logins = [tokens.logins.begin("alice", b"first") for _ in range(101)]
    assert [tokens.who(each) for each in logins] == [None, *["alice"] * 100]
