import subprocess
import sys

import numpy as np
import pyarrow as pa

from analysis.metrics.few import Few
from analysis.table import hashes
from analysis.table.hashes import of_columns

NAMES = [None, "", "alice", "bob", "Zoë", "a\x00b", "'; drop table", "💥", "alice "]
PAIRS = [(one, other) for one in NAMES for other in NAMES]


def table(pairs: list[tuple[str | None, str | None]]) -> pa.Table:
    users, client_ids = zip(*pairs, strict=True)
    return pa.table({"user": pa.array(users, pa.string()), "client_id": pa.array(client_ids, pa.string())})


def coded(plain: pa.Table) -> pa.Table:
    return pa.table({name: plain[name].combine_chunks().dictionary_encode() for name in plain.column_names})


def test_different_names_have_different_numbers() -> None:
    assert len(set(of_columns(table(PAIRS), ("user", "client_id")).tolist())) == len(PAIRS)


def test_a_text_has_one_number_however_it_is_written() -> None:
    plain = table(PAIRS)
    found = of_columns(plain, ("user", "client_id"))
    np.testing.assert_array_equal(found, of_columns(coded(plain), ("user", "client_id")))
    backwards = coded(table(PAIRS[::-1]))  # another dictionary
    np.testing.assert_array_equal(found[::-1], of_columns(backwards, ("user", "client_id")))


def test_the_order_of_columns_matters() -> None:
    plain = table([("alice", "bob")])
    assert of_columns(plain, ("user", "client_id")) != of_columns(plain, ("client_id", "user"))


def test_many_numbers_are_different() -> None:
    brokers, names = np.meshgrid(np.arange(300), np.arange(1000))
    many = pa.table({"broker": brokers.ravel(), "user": [f"team-{each:04}" for each in names.ravel()]})
    found = of_columns(many, ("broker", "user"))
    assert len(np.unique(found)) == len(many)
    shares = np.bincount(found % 7, minlength=7) / len(many)
    assert abs(shares - 1 / 7).max() < 0.01


def test_another_process_has_the_same_numbers() -> None:
    script = (
        "import pyarrow as pa; from analysis.table.hashes import of_columns;"
        "print(of_columns(pa.table({'u': ['alice']}), 'u'))"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60).stdout
    assert said.strip() == str(of_columns(pa.table({"u": ["alice"]}), "u"))


def test_nobody() -> None:
    nothing = table(PAIRS).slice(0, 0)
    assert of_columns(nothing, ("user",)).shape == (0,)
    assert hashes.of_column(coded(nothing)["user"]).shape == (0,)


def test_a_few_are_found_among_many() -> None:
    chosen = table([("bob", None), ("alice", ""), ("💥", "alice ")]).append_column("place", pa.array([7, 0, 3]))
    few = Few.of(chosen, ("user", "client_id"), "place")
    found = few.of_rows(coded(table(PAIRS))).tolist()
    expected: dict[tuple[str | None, str | None], int] = {("bob", None): 7, ("alice", ""): 0, ("💥", "alice "): 3}
    assert found == [expected.get(pair, -1) for pair in PAIRS]


def test_none_are_found_where_none_are_meant() -> None:
    few = Few.of(table(PAIRS).slice(0, 0).append_column("place", pa.array([], pa.int64())), ("user",), "place")
    assert set(few.of_rows(table(PAIRS)).tolist()) == {-1}
