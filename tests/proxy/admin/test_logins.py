"""Logins end after their time, with the token that they were given for, and when there are too many; how long after
wrong tokens the next one is looked at.
"""

import pytest

from proxy.admin.logins import LOGIN_S, Guesses, Logins


class Tokens:
    def __init__(self) -> None:
        self.token = b"first"
        self.now_s = 0.0
        self.logins = Logins(lambda: self.now_s)

    def who(self, login_id: str) -> str | None:
        login = self.logins.find(login_id)
        return None if login is None or not login.is_for(self.token) else login.name


def test_login_is_known_until_its_time_is_over() -> None:
    tokens = Tokens()
    login = tokens.logins.begin("alice", b"first")
    tokens.now_s = LOGIN_S - 1
    assert tokens.who(login) == "alice"
    tokens.now_s = LOGIN_S
    assert tokens.who(login) is None
    assert not tokens.logins._logins


def test_login_is_for_the_token_that_it_was_given_for() -> None:
    for other in (b"second", b""):
        tokens = Tokens()
        login = tokens.logins.begin("alice", b"first")
        tokens.token = other
        assert tokens.who(login) is None


def test_login_is_forgotten_and_known_by_no_other_process() -> None:
    tokens = Tokens()
    login = tokens.logins.begin("alice", b"first")
    assert Logins().find(login) is None
    tokens.logins.end(login)
    assert tokens.who(login) is None
    assert tokens.who("") is None


def test_logins_are_bounded_and_the_oldest_ends() -> None:
    tokens = Tokens()
    logins = [tokens.logins.begin("alice", b"first") for _ in range(101)]
    assert [tokens.who(each) for each in logins] == [None, *["alice"] * 100]


class Guessing:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.guesses = Guesses(lambda: self.now_s)

    def wrong(self, number: int, network: str = "10.0.0.1") -> int:
        for _ in range(number):
            self.guesses.count(network)
        return self.guesses.wait_s(network)


@pytest.mark.parametrize(("number", "wait_s"), [(4, 0), (5, 1), (6, 2), (8, 8), (11, 60), (5000, 60)])
def test_each_wrong_token_beyond_five_doubles_the_wait(number: int, wait_s: int) -> None:
    guessing = Guessing()
    assert guessing.wrong(number) == wait_s
    assert guessing.guesses.wait_s("10.0.0.2") == 0
    guessing.now_s = wait_s
    assert guessing.guesses.wait_s("10.0.0.1") == 0


def test_wrong_tokens_are_forgotten_after_ten_minutes() -> None:
    guessing = Guessing()
    guessing.wrong(8)
    guessing.now_s = 601
    assert guessing.wrong(1) == 0


def test_networks_that_are_slowed_are_bounded() -> None:
    guessing = Guessing()
    for number in range(3000):
        guessing.wrong(1, str(number))
    assert len(guessing.guesses._wrong) == 1000
