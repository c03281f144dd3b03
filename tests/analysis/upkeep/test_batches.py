from analysis.upkeep.batches import Over


def test_all_but_the_last_of_a_stream_are_over() -> None:
    over = Over({}, ["a-b-0", "a-b-1", "a-b-2", "other-0"])
    assert [number for number in range(4) if f"a-b-{number}" in over] == [0, 1]
    assert "other-0" not in over
    assert "unknown-0" not in over


def test_a_checkpoint_says_it_better() -> None:
    over = Over({"a": 2, "put-back": 0, "new": -1}, ["a-2", "put-back-0", "put-back-5", "new-0"])
    assert [name for name in ("a-2", "a-3", "put-back-0", "put-back-1", "put-back-5", "new-0") if name in over] == [
        "a-2",
        "put-back-0",
    ]


def test_names_that_are_no_batches_of_a_stream() -> None:
    over = Over({}, ["compacted-123", "None", "mine", "x-"])
    assert "compacted-122" in over
    assert [name for name in ("None", "mine", "x-", "-1", "") if name in over] == []
