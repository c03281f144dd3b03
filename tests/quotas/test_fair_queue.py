from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from quotas.fair_queue import FORGETS, FairQueue, Path, QueueEntry, numbers

MALLORY, ALICE = ("mallory", "10.0.0.1", "app"), ("alice", "10.0.0.2", "app")


def add(queue: FairQueue, path: Path, weight: float = 1.0) -> QueueEntry:
    entry = QueueEntry(next(numbers), weight, weight)
    queue.add(entry, path)
    return entry


def taken(queue: FairQueue, entries: dict[QueueEntry, str], most: int = 10**6) -> str:
    """Whose entries come, in turn."""
    found = ""
    while queue and len(found) < most:
        entry = queue.take()
        assert entry is not None
        found += entries[entry]
    return found


def test_entries_of_one_party_are_taken_by_number() -> None:
    queue = FairQueue()
    first, second, third = (QueueEntry(number, 1.0, 1.0) for number in (7, 8, 9))
    for entry in (second, third, first):
        queue.add(entry, ALICE)
    assert [queue.take() for _ in range(4)] == [first, second, third, None]


def test_parties_with_unequal_entries_take_turns() -> None:
    queue = FairQueue()
    entries = {add(queue, MALLORY): "m" for _ in range(60)}
    entries |= {add(queue, ALICE): "a" for _ in range(3)}
    assert taken(queue, entries, 7) == "mamamam"


def test_names_that_are_made_up_gain_nothing_against_those_of_another_user_or_address() -> None:
    queue = FairQueue()
    entries = {add(queue, ("mallory", f"10.0.1.{number}", f"made-up-{number}")): "m" for number in range(60)}
    entries |= {add(queue, ("ANONYMOUS", "10.0.0.9", f"made-up-{number}")): "s" for number in range(60)}
    entries[add(queue, ("ANONYMOUS", "10.0.0.2", "app"))] = "v"
    entries[add(queue, ALICE)] = "a"
    first = taken(queue, entries, 7)
    assert first.index("a") <= 2
    assert first.index("v") <= 5


def test_small_requests_do_not_wait_for_as_many_large_ones() -> None:
    """A client with one small request at a time has as many bytes as one with large ones, not as many requests."""
    queue = FairQueue()
    entries = {add(queue, MALLORY, 1000): "m" for _ in range(3)}
    found = ""
    entries[add(queue, ALICE, 100)] = "a"
    for _ in range(22):
        entry = queue.take()
        assert entry is not None
        found += entries[entry]
        if entries[entry] == "a":
            entries[add(queue, ALICE, 100)] = "a"
    assert found == "m" + "a" * 10 + "m" + "a" * 10


def test_removed_entries_delay_no_other_and_free_their_names() -> None:
    queue = FairQueue()
    stays = add(queue, ALICE)
    for number in range(10_000):
        queue.remove(add(queue, (f"user-{number}", "10.0.0.1", "app")))
        queue.remove(add(queue, ("mallory", "10.0.0.1", f"made-up-{number}")))
        queue.remove(add(queue, MALLORY))
    all_of_them = queue._all
    assert len(all_of_them.members) < 2 * FORGETS
    assert len(all_of_them.members["mallory"].members["10.0.0.1"].members) < 2 * FORGETS
    assert len(all_of_them.turns) < 2 * FORGETS
    assert queue.take() is stays
    assert not queue._all.members


def test_cost_before_an_entry_counts_other_parties_alike() -> None:
    queue = FairQueue()
    assert queue.cost_before(ALICE) == 0
    for _ in range(10):
        add(queue, MALLORY, 100)
    assert queue.cost_before(MALLORY) == 1000
    assert queue.cost_before(ALICE) == 100
    assert queue.cost_before(("mallory", "10.0.0.1", "other")) == 100
    assert queue.cost_before(("mallory", "10.0.0.3", "app")) == 100
    add(queue, ALICE, 100)
    assert queue.cost_before(ALICE) == 100 + 200


def test_take_all_returns_entries_by_number() -> None:
    queue = FairQueue()
    entries = [add(queue, path) for path in (ALICE, MALLORY, ALICE, ("bob", "", ""), MALLORY)]
    queue.remove(entries[1])
    assert queue.take_all() == [entries[0], *entries[2:]]
    assert not queue
    queue.remove(entries[0])
    assert not queue


_NAMES = st.sampled_from("ab")
_STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "take", "leave"]), st.tuples(_NAMES, _NAMES, _NAMES), st.integers(1, 50)),
    max_size=120,
)


@given(_STEPS)
def test_every_entry_is_taken_once_in_any_order_of_steps(steps: list[tuple[str, Path, int]]) -> None:
    queue = FairQueue()
    waiting: dict[QueueEntry, Path] = {}
    for step, path, weight in steps:
        if step == "add":
            waiting[add(queue, path, weight)] = path
        elif step == "leave" and waiting:
            entry = list(waiting)[weight % len(waiting)]
            queue.remove(entry)
            del waiting[entry]
        elif (taken := queue.take()) is not None:
            assert taken.number == min(entry.number for entry, path in waiting.items() if path == waiting[taken])
            del waiting[taken]
        assert len(queue) == len(waiting)
        assert sum(queue.cost_before(path) for path in [("z", "", "")]) <= sum(entry.cost for entry in waiting)
    assert set(queue.take_all()) == set(waiting)


@given(st.lists(st.tuples(_NAMES, _NAMES, _NAMES), min_size=1, max_size=8, unique=True), st.data())
def test_parties_that_always_wait_differ_by_one_request_at_most(paths: list[Path], data: st.DataObject) -> None:
    """By what they weigh; of each pair of names at any place in the path."""
    queue = FairQueue()
    weights = {path: data.draw(st.integers(1, 20)) for path in paths}
    whose: dict[QueueEntry, Path] = {}
    for path in paths:
        for _ in range(2):
            whose[add(queue, path, weights[path])] = path
    had: Counter[Path] = Counter()
    for _ in range(300):
        entry = queue.take()
        assert entry is not None
        path = whose.pop(entry)
        whose[add(queue, path, weights[path])] = path
        for depth in range(1, 4):
            had[path[:depth]] += weights[path]
    for one in had:
        for other in had:
            if len(one) == len(other) and one[:-1] == other[:-1]:
                assert abs(had[one] - had[other]) <= 2 * max(weights.values())


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.floats(0.1, 9.0)), max_size=20),
    st.integers(0, 10),
    st.floats(0.1, 5.0),
)
def test_announced_order_is_the_order_of_taking(
    asked: list[tuple[str, str, float]], taken_before: int, owed: float
) -> None:
    queue = FairQueue()
    for index, (user, client_id, weight) in enumerate(asked):
        add(queue, (user, "10.0.0.1", client_id), weight + index / 997)
    for _ in range(taken_before):
        queue.take()
    queue.owe(("a", "10.0.0.1", "x"), owed)
    told = list(queue.in_turn())
    assert told == [queue.take() for _ in range(len(queue))]
