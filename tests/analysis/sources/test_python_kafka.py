"""What is decided without a broker; reading is tests/integration/test_ingest.py."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.errors import AnalysisError
from analysis.sources.connection import Connection
from analysis.sources.python_kafka import Offsets, Piece, Topic, batch_end, going_on, pieces

offsets = st.integers(0, 10**6)


def topic(*, accept_loss: bool = False) -> Topic:
    return Topic("t", Connection("b:9092", {"sasl.mechanism": "PLAIN"}), 10, accept_loss)


def test_a_topic_survives_as_options_and_its_secrets_are_called_so() -> None:
    options = topic().options()
    assert Topic.of(options) == topic()
    assert [name for name, value in options.items() if "PLAIN" in value] == ["secret"]


def test_a_batch_takes_all_there_is_within_the_limit() -> None:
    assert batch_end({"0": 5, "1": 0}, {"0": 9, "1": 6}, 10) == {"0": 9, "1": 6}
    assert batch_end({"0": 5, "1": 0}, {"0": 9, "1": 6}, None) == {"0": 9, "1": 6}


def test_a_batch_beyond_the_limit_takes_of_each_its_share() -> None:
    assert batch_end({"0": 0, "1": 0, "2": 7}, {"0": 900, "1": 1, "2": 7}, 90) == {"0": 90, "1": 1, "2": 7}


@given(st.lists(st.tuples(offsets, offsets), min_size=1, max_size=5), st.integers(1, 10**6))
def test_batches_get_to_the_end(spans: list[tuple[int, int]], limit: int) -> None:
    at: Offsets = {str(number): min(span) for number, span in enumerate(spans)}
    last: Offsets = {str(number): max(span) for number, span in enumerate(spans)}
    end = batch_end(at, last, limit)
    assert all(at[each] <= end[each] <= last[each] for each in at)
    assert sum(end.values()) - sum(at.values()) <= limit + len(spans)
    assert end == last or all(end[each] > at[each] for each in at if last[each] > at[each])


def test_a_partition_that_is_behind_its_offset_waits() -> None:
    assert batch_end({"0": 5}, {"0": 3}, 10) == {"0": 5}


def test_pieces_cover_what_is_read_without_a_gap() -> None:
    found = pieces({"0": 100, "1": 7}, {"0": 700, "1": 7})
    assert found == [Piece(0, 100, 350), Piece(0, 350, 600), Piece(0, 600, 700)]


def test_reading_goes_on_where_it_was_and_begins_where_a_new_partition_does() -> None:
    assert going_on(topic(), {"0": 5}, {"0": 2, "1": 3}, {"0": 20, "1": 9}) == {"0": 5, "1": 3}


@pytest.mark.parametrize(("first", "last"), [(9, 20), (0, 4)])
def test_what_was_deleted_is_a_failure_unless_that_is_accepted(first: int, last: int) -> None:
    """By retention, or with the whole topic."""
    with pytest.raises(AnalysisError, match=f"partition 0 has offsets {first} to {last}, and 5 is next"):
        going_on(topic(), {"0": 5}, {"0": first}, {"0": last})
    assert going_on(topic(accept_loss=True), {"0": 5}, {"0": first}, {"0": last}) == {"0": first}
