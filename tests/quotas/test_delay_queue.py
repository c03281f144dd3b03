from hypothesis import given
from hypothesis import strategies as st

from quotas.delay_queue import DelayQueue, Handle

steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 50)),
        st.tuples(st.just("discard"), st.integers(0, 100)),
        st.tuples(st.just("due"), st.integers(0, 50)),
    ),
    max_size=80,
)


@given(steps)
def test_delay_queue_behaves_as_a_sorted_list(history: list[tuple[str, int]]) -> None:
    queue: DelayQueue[int] = DelayQueue()
    handles: list[Handle[int]] = []
    expected: list[tuple[int, int]] = []  # (end, number), numbers in order of adding
    for step, value in history:
        if step == "add":
            number = len(handles)
            handles.append(queue.add(value, number))
            expected.append((value, number))
        elif step == "discard" and handles:
            number = value % len(handles)
            handles[number].cancel()
            expected = [entry for entry in expected if entry[1] != number]
        elif step == "due":
            expected.sort()
            assert queue.due(value) == [number for end, number in expected if end <= value]
            expected = [entry for entry in expected if entry[0] > value]
        assert len(queue) == len(expected)
        assert queue.next_end() == min((end for end, _ in expected), default=None)


def test_cancelling_a_due_entry_changes_nothing() -> None:
    queue: DelayQueue[str] = DelayQueue()
    first = queue.add(10, "first")
    queue.add(20, "second")
    assert queue.due(10) == ["first"]
    first.cancel()
    first.cancel()
    assert len(queue) == 1


def test_cancelled_entries_do_not_pile_up() -> None:
    queue: DelayQueue[int] = DelayQueue()
    queue.add(0, -1)
    for number in range(1000):
        queue.add(10 + number, number).cancel()
    assert len(queue._heap) < 20
