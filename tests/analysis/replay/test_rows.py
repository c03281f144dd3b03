import numpy as np
import pyarrow as pa
import pytest

from analysis.replay import rows
from analysis.replay.rows import codes

NAMES = ["alpha", None, "beta", "alpha", "", "beta"]


def test_null_is_a_value_of_its_own() -> None:
    code, values = codes(pa.array(["x", None, "y"]))
    assert (code.tolist(), values) == ([0, 2, 1], 3)


def test_intervals_are_of_a_millisecond_to_an_hour() -> None:
    found = rows.interval_ms(pa.table({"interval_ms": [0, 1, 1000, 86_400_000]}))
    assert np.array_equal(found, [1, 1, 1000, 3_600_000])


def test_only_some_rows() -> None:
    table = pa.table({"a": [1, 2, 3]})
    assert rows.only(table, pa.chunked_array([[True, True, True]])) is table
    assert rows.only(table, pa.chunked_array([[True, None, False]])).to_pydict() == {"a": [1]}
    assert not len(rows.only(table.slice(0, 0), pa.chunked_array([[]], pa.bool_())))


@pytest.mark.parametrize("column", [pa.chunked_array([NAMES]), pa.chunked_array([pa.array(NAMES).dictionary_encode()])])
def test_texts_that_are_the_same_are_one_object(column: pa.ChunkedArray) -> None:
    found = rows.texts(column)
    assert found == NAMES
    assert len({id(each) for each in found if each is not None}) == 3
    assert rows.texts(column.slice(0, 0)) == []
