import numpy as np
import pyarrow as pa
import pytest

from analysis.replay import rows
from analysis.replay.rows import codes, numbered
from analysis.table.parquet import joined

NAMES = ["a", None, "a", "", "b", None, "a"]
BROKERS = [1, 1, -1, 1, 1, 1, 1]


@pytest.fixture(params=[2**62, 3], ids=["one number", "numbered again on the way"])
def table(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> pa.Table:
    monkeypatch.setattr(rows, "_MOST_KEYS", request.param)
    names = pa.array(NAMES).dictionary_encode()
    return joined([pa.table({"name": names, "broker": BROKERS, "other": pa.array(NAMES)})])


def test_rows_with_the_same_values_have_the_same_number(table: pa.Table) -> None:
    number, row = numbered(table, ["name", "broker", "other"])
    expected = list(zip(NAMES, BROKERS, strict=True))
    assert [expected[row[each]] for each in number] == expected
    assert len(row) == len(set(expected)) == 5


def test_no_rows_have_no_numbers(table: pa.Table) -> None:
    number, row = numbered(table.slice(0, 0), ["name", "broker"])
    assert len(number) == len(row) == 0


def test_null_is_a_value_of_its_own() -> None:
    code, values = codes(pa.array(["x", None, "y"]))
    assert (code.tolist(), values) == ([0, 2, 1], 3)


def test_intervals_are_of_a_millisecond_to_an_hour() -> None:
    found = rows.interval_ms(pa.table({"interval_ms": [0, 1, 1000, 86_400_000]}))
    assert np.array_equal(found, [1, 1, 1000, 3_600_000])
