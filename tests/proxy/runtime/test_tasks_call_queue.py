from collections.abc import Callable

from proxy.runtime.faults import counts
from proxy.runtime.tasks import CallQueue


class Loop:
    """Calls what was asked for, one call a step."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def step(self) -> None:
        self.calls.pop(0)()


def test_queued_calls_run_one_per_loop_step_in_order() -> None:
    loop = Loop()
    turns = CallQueue(loop.calls.append)
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


def test_failing_queued_call_is_counted_and_next_one_runs() -> None:
    loop = Loop()
    turns = CallQueue(loop.calls.append)
    done: list[str] = []

    def fail() -> None:
        raise KeyError

    before = counts["a turn"]
    turns.later(fail)
    turns.later(lambda: done.append("next"))
    loop.step()
    loop.step()
    assert (done, counts["a turn"]) == (["next"], before + 1)
