from analysis.upkeep.batches import Batches, compacted, parts


def over(committed: dict[str, int], seen: list[str], *asked: str) -> list[str]:
    known = Batches(committed, [("12", name) for name in seen])
    return [name for name in asked if known.is_over(name)]


def test_all_but_the_last_of_a_stream_are_over() -> None:
    seen = ["a-b-0", "a-b-1", "a-b-2", "other-0"]
    assert over({}, seen, *seen, "a-b-3", "unknown-0") == ["a-b-0", "a-b-1"]


def test_a_checkpoint_says_it_better() -> None:
    asked = ("a-2", "a-3", "put-back-0", "put-back-1", "put-back-5", "new-0")
    assert over({"a": 2, "put-back": 0, "new": -1}, [*asked], *asked) == ["a-2", "put-back-0"]


def test_names_that_are_no_batches_of_a_stream() -> None:
    assert over({}, ["None", "mine", "x-"], "None", "mine", "x-", "-1", "") == []


def test_what_was_compacted_goes_on_to_say_what_it_is_of() -> None:
    name = compacted(["a-b-7", compacted(["a-b-9", "a-b-3"])])
    assert parts(name) == ("a-b", 3)
    assert over({}, [name], name) == [name]
    assert parts("compacted-stream-7") == ("compacted-stream", 7)


def test_what_came_late() -> None:
    seen = [("12", "a-0"), ("13", "a-2"), ("12", "a-2"), ("12", "a-3"), ("13", "a-3"), ("12", "b-9")]
    known = Batches({}, seen)
    assert [name for hour, name in seen if known.is_late(name, hour)] == ["a-3"]
    of_12, late, of_13 = compacted(["a-0", "a-2"]), compacted(["a-3"]), compacted(["a-2", "a-3"])
    seen = [("12", of_12), ("12", late), ("13", of_13), ("12", "a-4")]
    known = Batches({}, seen)
    assert [name for hour, name in seen if known.is_late(name, hour)] == [late, "a-4"]
