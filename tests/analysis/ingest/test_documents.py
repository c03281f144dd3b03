import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.ingest.columns import UnreadableError
from analysis.ingest.documents import END_OF_TIME_MS, HEADER, read, table
from analysis.schema import COLUMNS, FLAG, LIMIT, TEXT, Column
from quotas.kinds import QuotaKind
from tests.analysis.records import BEGIN_MS, STORED, Document, document, row, stored

TWO_ROWS = [row("alice", bytes_in=7, produce_limit=1024.5, produce_rule="user=alice"), row(None, None, broker=-1)]
DAY_MS = 86_400_000
BY_NAME = {column.name: column for column in COLUMNS}


def with_columns(**changes: Any) -> Document:
    whole = document(0, TWO_ROWS)
    return {**whole, "rows": {**whole["rows"], **changes}}


def with_fields(**changes: Any) -> Document:
    return {**document(0, TWO_ROWS), **changes}


def rows_of(*documents: Document) -> list[dict[str, Any]]:
    """What a table has of documents, after their texts."""
    rows: list[dict[str, Any]] = table([read(json.dumps(each).encode()) for each in documents]).to_pylist()
    assert all(each.keys() == set(STORED) for each in rows)
    return rows


def fault_of(text: str | bytes) -> str | None:
    try:
        read(text if isinstance(text, bytes) else text.encode())
    except UnreadableError as error:
        return str(error)
    return None


def test_document_of_the_proxy_becomes_its_stored_rows() -> None:
    documents = [document(seq, [*TWO_ROWS, row("José 🦦", "")]) for seq in range(3)]
    assert rows_of(*documents) == [{name: each[name] for name in STORED} for each in stored(documents)]


def test_unknown_columns_are_ignored_and_missing_ones_default() -> None:
    later = {**with_columns(carbon=[1, 2], produce_bytes=None, fetch_limit=None), "mood": {"good": True}}
    del later["samples"], later["cluster"], later["rows"]["fetch_bytes"], later["rows"]["listener"]
    first, second = rows_of(later)
    assert (first["produce_bytes"], first["fetch_bytes"], first["fetch_limit"], first["listener"]) == (0, 0, None, "")
    assert (first["user"], first["bytes_in"], first["samples"], first["cluster"]) == ("alice", 7, 11, "")
    assert (second["user"], second["bytes_in"], second["broker"]) == (None, 0, -1)


def test_null_column_reads_as_a_missing_one() -> None:
    nulls = with_columns(**{column.name: [None, None] for column in COLUMNS})
    nulls |= {"cluster": None, "mode": None, "samples": None, "sample_ms": None}
    for each in rows_of(nulls):
        assert {column.name: each[column.name] for column in COLUMNS} == {
            column.name: column.missing for column in COLUMNS
        }
        assert (each["cluster"], each["mode"], each["samples"], each["sample_ms"]) == ("", "enforce", 11, 1000)


def test_null_beside_a_value_leaves_the_value_unchanged() -> None:
    found = rows_of(
        with_columns(bytes_in=[None, 5], listener=["PLAIN", None], broker=[None, 3], produce_limit=[None, 1])
    )
    assert [(each["bytes_in"], each["listener"], each["broker"], each["produce_limit"]) for each in found] == [
        (0, "PLAIN", -1, None),
        (5, "", 3, 1.0),
    ]


def test_connection_exempt_and_shadow_columns_are_read() -> None:
    connected: dict[str, list[Any]] = {
        "ip": ["10.0.0.5", None],
        "exempt": [None, True],
        "connection_attempts": [7, 0],
        "connection_limit": [2, None],
        "connection_rule": ["ip=10.0.0.5", None],
        "connection_throttled": [3, 0],
        "accept_waits": [0, 4],
        "produce_shadow_limit": [None, 100],
        "produce_shadow_throttled": [0, 5],
    }
    first, second = rows_of(with_columns(**connected))
    assert {name: first[name] for name in connected} == {**{k: v[0] for k, v in connected.items()}, "exempt": False}
    assert {name: second[name] for name in connected} == {name: values[1] for name, values in connected.items()}


def test_document_without_later_columns_reads_as_the_default() -> None:
    old = document(0, TWO_ROWS)
    later = [name for name in old["rows"] if "shadow" in name or name.startswith(("connection_", "accept_"))]
    for name in ("exempt", "ip", *later):
        del old["rows"][name]
    del old["controller_samples"], old["controller_sample_ms"]
    assert rows_of(old) == rows_of(document(0, TWO_ROWS))


def test_users_named_true_and_false_stay_text() -> None:
    assert [each["user"] for each in rows_of(with_columns(user=["true", "false"]))] == ["true", "false"]


def test_document_without_rows_adds_no_rows() -> None:
    for each in (document(0, []), {**document(1, []), "rows": {}}, {**document(2, []), "rows": {"user": None}}):
        assert read(json.dumps(each).encode()).num_rows == 0
    assert rows_of(document(0, []), document(1, TWO_ROWS)) == rows_of(document(1, TWO_ROWS))


@pytest.mark.parametrize("limit", [0, 1, 2**53 + 1, 2**63, 2**64 - 1, 10**30, 0.5, 1e-3, 1e32])
def test_every_limit_of_a_quota_file_is_read_from_rows(limit: float) -> None:
    assert [each["produce_limit"] for each in rows_of(with_columns(produce_limit=[limit, None]))] == [
        float(limit),
        None,
    ]


def test_largest_allowed_numbers_of_a_document_are_read() -> None:
    largest = {"seq": 2**53, "samples": 1000, "sample_ms": 86_400, "interval_ms": DAY_MS, "time_ms": END_OF_TIME_MS - 1}
    most = 125_000_000 * (DAY_MS + 60_000)
    first = rows_of({**with_columns(bytes_in=[most, 0], broker=[2**31 - 1, 0]), **largest})[0]
    assert (first["bytes_in"], first["broker"]) == (most, 2**31 - 1)
    assert (first["samples"], first["interval_ms"], first["time"].year) == (1000, DAY_MS, 9999)


def test_large_but_possible_figures_are_accepted() -> None:
    """Nor is a megabyte that a stop found in its last millisecond, or a mute that a stall was late with."""
    assert rows_of(with_columns(bytes_in=[10**9, 0], produce_muted_ms=[1500, 0]))[0]["bytes_in"] == 10**9
    assert rows_of({**with_columns(bytes_in=[10**6, 0], requests=[5, 0]), "interval_ms": 1})[0]["bytes_in"] == 10**6


FAULTS: list[tuple[str | bytes | Document, str]] = [
    ("", "is not JSON"),
    ('{"v": 1, "rows', "is not JSON"),
    (b'{"v": 1, "cluster": "\xff"}', "is not JSON"),
    (with_columns(produce_limit=[1, math.nan]), "is not JSON"),
    (with_columns(produce_limit=[1, math.inf]), "is not JSON"),
    ("[1, 2]", "is not a document: it has no v"),
    ("null", "is not a document: it has no v"),
    ("{}", "has no v"),
    ('{"v": null}', "has no v"),
    ('{"v": 2, "rows": "elsewhere"}', "version 2 is not known: this Sluice reads 1"),
    ('{"v": 2, "rows": {}}', "version 2 is not known"),
    ('{"v": 1}', "has no instance, boot, seq, time_ms, interval_ms, rows"),
    (with_fields(boot=None), "has no boot"),
    (with_fields(rows=None), "has no rows"),
    (with_fields(seq=-1), "is below 0: seq"),
    (with_fields(time_ms=-1, interval_ms=-1), "is below 0: interval_ms"),
    (with_fields(v=True), "has values of another type in v"),
    (with_fields(v="1"), "has values of another type in v"),
    (with_fields(v=1.0), "has values of another type in v"),
    (with_fields(seq="first"), "has values of another type in seq"),
    (with_fields(seq=1.0), "has values of another type in seq"),
    (with_fields(seq=2**63, samples=2**31), "has values of another type in seq, samples"),
    (with_fields(time_ms=True, cluster=5, mode=[]), "has values of another type in cluster, mode, time_ms"),
    (with_fields(time_ms=10**18), "wrong clock: time_ms is 1000000000000000000, which is not in milliseconds"),
    (with_fields(time_ms=END_OF_TIME_MS), "wrong clock: time_ms is 253402300800000, which is not in milliseconds"),
    (with_fields(rows=[1]), "has values of another type in rows"),
    (with_columns(user="alice", bytes_in={"0": 1}), "has values of another type in rows.user, rows.bytes_in"),
    (with_columns(bytes_in=[1, "many"]), "has values of another type in rows.bytes_in"),
    (with_columns(bytes_in=[1, 1.0], requests=[1, True]), "of another type in rows.bytes_in, rows.requests"),
    (with_columns(bytes_in=[1, 2**63], broker=[1, 2**31]), "of another type in rows.broker, rows.bytes_in"),
    (with_columns(bytes_in=[1, None], requests=[None, False]), "has values of another type in rows.requests"),
    (with_columns(user=["alice", 7], client_id=[[], "x"]), "of another type in rows.user, rows.client_id"),
    (with_columns(produce_limit=[1, "2"], fetch_limit=[True, None]), "in rows.produce_limit, rows.fetch_limit"),
    (with_columns(user=["alice"]), "arrays differ in length: listener 2, broker 2, user 1, client_id 2"),
    (with_columns(bytes_in=[1, -2], broker=[-1, -2]), "too small in rows.broker, rows.bytes_in"),
    (with_columns(fetch_limit=[-0.5, None]), "has numbers that are too small in rows.fetch_limit"),
    (with_columns(bytes_in=[None, -1]), "has numbers that are too small in rows.bytes_in"),
    (with_fields(interval_ms=0), "interval_ms is 0, and may be from 1 to 86400000"),
    (with_fields(interval_ms=2**62), "interval_ms is 4611686018427387904, and may be from 1 to 86400000"),
    (with_fields(samples=0), "samples is 0, and may be from 1 to 1000"),
    (with_fields(samples=1001), "samples is 1001, and may be from 1 to 1000"),
    (with_fields(sample_ms=2**62), "sample_ms is 4611686018427387904, and may be from 1 to 3600000"),
    (with_fields(samples=1000, sample_ms=86_401), "make a window of 86401000 ms, and may make 86400000"),
    (with_fields(seq=2**62), "seq is 4611686018427387904, and may be from 0 to 9007199254740992"),
    (with_fields(time_ms=0), "wrong clock: time_ms is 0, and may be from 1577836800000 on (2020-01-01 00:00:00 UTC)"),
    (with_fields(time_ms=-5), "wrong clock: time_ms is -5, and may be from 1577836800000 on (2020-01-01 00:00:00 UTC)"),
    (with_fields(cluster="x" * 1001), "cluster has 1001 bytes, and may have 1000"),
    (with_fields(boot="ä" * 501), "boot has 1002 bytes, and may have 1000"),
    (with_columns(user=["x", "ä" * 2**17 + "x"]), "rows.user[1] has 262145 bytes, and may have 262144"),
    (
        with_columns(fetch_bytes=[0, 2**62]),
        "rows.fetch_bytes[1] is 4611686018427387904, and may be 7625000000000 in an",
    ),
    (with_columns(requests=[2**40, 0]), "rows.requests[0] is 1099511627776, and may be 61000000000 in an interval"),
    (
        with_columns(fetch_muted_ms=[61_001, 0]),
        "rows.fetch_muted_ms[0] is 61001, and may be 61000 in an interval of 1000",
    ),
    (with_columns(request_time_ms=[10**15 + 1, 0]), "rows.request_time_ms[0] is 1000000000000001, and may be"),
    (with_columns(connections=[10**8 + 1, None]), "rows.connections[0] is 100000001, and may be 100000000"),
    (
        with_columns(produce_limit=[1e308, None]),
        "rows.produce_limit[0] is 1e+308, and may be 0, or from 0.001 to 1e+32",
    ),
    (
        with_columns(produce_limit=[None, 5e-324]),
        "rows.produce_limit[1] is 5e-324, and may be 0, or from 0.001 to 1e+32",
    ),
    ({**document(0, []), "rows": {"user": ["x"] * 10_001}}, "has 10001 rows, and may have 10000"),
    (b"[" * 100_000, "is not JSON"),
    (b'{"v": 1, "rows": ' + b'{"user": ' * 100_000, "is not JSON"),
    (b'{"v": 1' + b" " * 2**23 + b"}", "has 8388616 bytes, and may have 8388608"),
    (b'{"v": 1' + b"0" * 5000 + b"}", "is not JSON"),
]


@pytest.mark.parametrize(("written", "said"), FAULTS)
def test_faulty_document_is_refused_with_its_fault(written: str | bytes | Document, said: str) -> None:
    fault = fault_of(json.dumps(written) if isinstance(written, dict) else written)
    assert fault is not None
    assert said in fault


def test_document_more_than_a_day_ahead_is_refused() -> None:
    text = json.dumps(document(0, TWO_ROWS)).encode()
    assert read(text, BEGIN_MS + 1).num_rows == 2
    with pytest.raises(UnreadableError, match=f"time_ms is {BEGIN_MS}, more than a day ahead"):
        read(text, BEGIN_MS)


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([-1, 0, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    st.just([]),
    st.just({}),
)


def value_of(column: Column) -> st.SearchStrategy[Any]:
    """What a column may hold, most of the time."""
    plain: st.SearchStrategy[Any]
    if column.type == TEXT:
        plain = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
    elif column.type == LIMIT:
        plain = st.floats(1e-3, 1e32) | st.integers(0, 2**70)
    elif column.type == FLAG:
        plain = st.booleans()
    else:
        most = int(largest(column, 1000))
        plain = st.integers(0, most) | st.sampled_from([most, most + 1])
    return st.one_of(plain, plain, st.none(), ODD)


def largest(column: Column, interval_ms: int) -> float:
    """The bounds of docs/usage-records.md."""
    name = column.name
    for kind in QuotaKind:
        name = name.removeprefix(f"{kind.row.word}_").removeprefix("shadow_").removeprefix("cap_")
    name = name.removeprefix("controller_")
    per_ms = {"bytes": 125 * 10**6, "bytes_in": 125 * 10**6, "bytes_out": 125 * 10**6, "muted_ms": 1}
    per_ms |= dict.fromkeys(("requests", "throttled", "partitions", "connections_opened", "connections_refused"), 10**6)
    per_ms |= dict.fromkeys(("attempts", "accept_waits"), 10**6)
    if name in per_ms:
        return per_ms[name] * (interval_ms + 60_000)
    fixed = {"interval_ms": DAY_MS, "samples": 1000, "sample_ms": 3_600_000, "seq": 2**53, "connections": 10**8}
    fixed |= {"dropped_documents": 2**53}
    fixed |= {"request_time_ms": 10**15, "throttle_ms": 10**15, "accept_wait_ms": 10**15, "time_ms": END_OF_TIME_MS - 1}
    return fixed.get(name, 2**31 - 1)


def worth(column: Column, value: Any) -> tuple[bool, Any]:
    """Whether a value may stand in a column, and what is kept of it, as docs/usage-records.md has it."""
    if value is None:
        return True, column.missing
    if isinstance(value, bool) or column.type == FLAG:
        return isinstance(value, bool) and column.type == FLAG, value
    if column.type == TEXT:
        return isinstance(value, str), value
    if not isinstance(value, int | float):
        return False, None
    if column.type == LIMIT:
        return value == 0 or 1e-3 <= value <= 1e32, float(value)
    least = {"broker": -1, "time_ms": 1_577_836_800_000, "interval_ms": 1, "samples": 1, "sample_ms": 1}
    least |= {"controller_samples": 1, "controller_sample_ms": 1}
    return isinstance(value, int) and least.get(column.name, 0) <= value <= largest(column, 1000), value


@given(st.data())
def test_each_value_is_taken_or_refused_as_one_by_one(data: st.DataObject) -> None:
    """Whatever stands in three columns of two rows: as whole arrays are read, or each value by itself."""
    names = data.draw(st.lists(st.sampled_from(sorted(BY_NAME)), min_size=1, max_size=3, unique=True))
    written = {name: data.draw(st.lists(value_of(BY_NAME[name]), min_size=2, max_size=2)) for name in names}
    kept = {name: [worth(BY_NAME[name], value) for value in values] for name, values in written.items()}
    text = json.dumps(with_columns(**written))
    good = all(taken for values in kept.values() for taken, _ in values)
    assert (fault_of(text) is None) == good
    if good:
        found = rows_of(json.loads(text))
        for name, values in kept.items():
            assert [each[name] for each in found] == [value for _, value in values]


@given(st.data())
def test_each_field_is_taken_or_refused(data: st.DataObject) -> None:
    field = data.draw(st.sampled_from(HEADER))
    value = data.draw(value_of(field))
    taken, _ = worth(field, value)
    if value is None:
        taken = field.missing is not None
    elif taken and field.name in {"samples", "sample_ms"}:
        taken = value * {"samples": 1000, "sample_ms": 11}[field.name] <= DAY_MS
    assert (fault_of(json.dumps(with_fields(**{field.name: value}))) is None) == taken


@given(st.binary(max_size=40) | st.recursive(ODD, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_arbitrary_bytes_and_json_are_refused_with_a_reason(found: Any) -> None:
    text = found if isinstance(found, bytes) else json.dumps(found).encode()
    assert fault_of(text)
