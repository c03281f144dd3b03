from collections.abc import Callable

import pytest

from proxy.turns import Turns


class Loop:
    """Calls what was asked for, one call a step."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def step(self) -> None:
        self.calls.pop(0)()


def test_one_at_a_time_in_the_order_of_asking() -> None:
    loop = Loop()
    turns = Turns(loop.calls.append)
    done: list[int] = []

    def twice(number: int) -> Callable[[], None]:
        def work() -> None:
            done.append(number)
            if done.count(number) < 2:
                turns.later(work)

        return work

    for number in range(3):
        turns.later(twice(number))
    for step in range(6):
        assert len(loop.calls) == 1
        loop.step()
        assert len(done) == step + 1
    assert done == [0, 1, 2, 0, 1, 2]
    assert not loop.calls


def test_one_that_fails_takes_no_turn_from_the_others() -> None:
    loop = Loop()
    turns = Turns(loop.calls.append)
    done: list[str] = []

    def fails() -> None:
        raise IndexError

    turns.later(fails)
    turns.later(lambda: done.append("the other"))
    with pytest.raises(IndexError):
        loop.step()
    loop.step()
    assert done == ["the other"]
    assert not loop.calls
