"""How long after wrong tokens the next one is looked at."""

import pytest

from proxy.admin.guesses import Guesses


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
