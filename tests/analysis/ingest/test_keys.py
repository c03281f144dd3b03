"""Keys: what they tell apart, and what is stored of a row's names."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.ingest.documents import read, table
from analysis.ingest.keys import split
from analysis.schema import NAMES
from tests.analysis.records import document, row, stored

NAMED = [column.name for column in NAMES]


def split_of(*rows: dict[str, Any], **fields: Any) -> tuple[pa.Table, pa.Table]:
    return split(table([read(json.dumps(document(0, list(rows), **fields)).encode())]))


names = st.sampled_from([None, "", "a", "b", "a=b", "user=a", "é", "client_id=", "\x00"])


@given(st.lists(st.tuples(names, names, st.integers(-1, 2), st.booleans()), min_size=1, max_size=30))
def test_rows_have_one_key_if_and_only_if_they_agree_in_all_names(clients: list[tuple[Any, Any, int, bool]]) -> None:
    rows = [row(user, client_id, broker=broker, exempt=exempt) for user, client_id, broker, exempt in clients]
    figures, keys = split_of(*rows)
    by_key = {each["key"]: each for each in keys.to_pylist()}
    assert len(by_key) == len(keys) == len(set(clients))
    expected = [{name: each[name] for name in NAMED} for each in stored([document(0, rows)])]
    assert [{name: by_key[key][name] for name in NAMED} for key in figures["key"].to_pylist()] == expected


def test_a_key_is_the_same_in_every_batch_and_process() -> None:
    _, keys = split_of(row("alice", "app"))
    assert keys["key"].to_pylist() == [3337409770855535987]


@pytest.mark.parametrize(("interval_ms", "nominal_ms"), [(1, 1000), (1499, 1000), (1500, 2000), (10_000, 10_000)])
def test_intervals_are_told_apart_in_whole_seconds(interval_ms: int, nominal_ms: int) -> None:
    _, keys = split_of(row(), interval_ms=interval_ms)
    assert keys["nominal_ms"].to_pylist() == [nominal_ms]


@pytest.mark.parametrize(
    ("rule", "counter"),
    [
        ("user=alice", ("alice", None)),
        ("client-id=<default>", (None, "app")),
        ("user-group=tenant-a, client-id-prefix=ap", ("group:tenant-a", "ap*")),
        ("a rule of a later version", (None, None)),
    ],
)
def test_names_of_counters_that_older_records_lack_are_of_their_rules(
    rule: str, counter: tuple[str | None, str | None]
) -> None:
    _, keys = split_of({**row("alice", "app"), "produce_rule": rule, "produce_bytes": 5}, {**row("bob", "app")})
    [alice] = [each for each in keys.to_pylist() if each["user"] == "alice"]
    assert (alice["produce_counter_user"], alice["produce_counter_client_id"]) == counter
