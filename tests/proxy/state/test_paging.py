from typing import NamedTuple

import pytest

from proxy.state.answers import as_json
from proxy.state.paging import MOST, BadParameterError, Query, cut, first, matching, parse
from proxy.state.resources import RESOURCES
from proxy.state.rows import ClientRow, Moment, ThrottledRow


class Named(NamedTuple):
    user: str
    client_id: str | None
    ratio: float | None = None


class Peer(NamedTuple):
    peer: str | None


ROWS = [Named("alice", "b", 0.5), Named("bob", None, None), Named("Élodie", "a", 2.0), Named("carl", "B", 1.0)]


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("ratio", ["alice", "carl", "Élodie", "bob"]),
        ("-ratio", ["Élodie", "carl", "alice", "bob"]),
        ("client_id", ["carl", "Élodie", "alice", "bob"]),
        ("-client_id", ["alice", "Élodie", "carl", "bob"]),
        ("", ["alice", "bob", "Élodie", "carl"]),
    ],
)
def test_rows_are_sorted_by_field_with_unknown_values_last(sort: str, order: list[str]) -> None:
    query = Query(sort.removeprefix("-"), sort.startswith("-"))
    assert [row.user for row in cut(ROWS, query)] == order
    assert [row.user for row in cut(ROWS, query._replace(limit=1, offset=1))] == order[:2]


@pytest.mark.parametrize(
    ("query", "users"),
    [
        (Query("", filters={"user": "bob"}), ["bob"]),
        (Query("", filters={"client_id": ""}), ["bob"]),
        (Query("", filters={"user": "alice", "client_id": "a"}), []),
        (Query("", q="b"), ["alice", "bob", "carl"]),
        (Query("", q="élo"), ["Élodie"]),
        (Query("", filters={"listener": "not a field of these rows"}), ["alice", "bob", "Élodie", "carl"]),
    ],
)
def test_rows_are_selected_by_filters_and_search(query: Query, users: list[str]) -> None:
    page = first(ROWS, query._replace(limit=1), Named)
    assert (page.total, [row.user for row in page.rows]) == (len(users), users[:1])
    assert [row.user for row in ROWS if matching(query, Named)(row)] == users


@pytest.mark.parametrize("peer", ["[::1]:8", "::1:8"])
def test_a_peer_is_found_with_and_without_brackets(peer: str) -> None:
    rows = [Peer("[::1]:8"), Peer("::1:8"), Peer("[::1]:88"), Peer(None)]
    query = parse(RESOURCES["connections"], {"peer": peer})
    assert [row for row in rows if matching(query, Peer)(row)] == rows[:2]
    assert [row for row in rows if matching(query._replace(filters={"peer": ""}), Peer)(row)] == rows[3:]


def test_no_field_is_sorted_by_that_has_no_order() -> None:
    sorts = {name: set(each.sorts) for name, each in RESOURCES.items()}
    assert not {"peers", "waits_for", "entity"} & set().union(*sorts.values())
    assert sorts["clients"] == set(ClientRow._fields)
    assert all(each.sort.removeprefix("-") in sorts[name] for name, each in RESOURCES.items() if each.sort)


def test_query_parameters_are_parsed_with_defaults() -> None:
    said = {"limit": str(MOST), "offset": "7", "sort": "-used", "user": "a", "broker": "3", "q": "ÄB", "all": "0"}
    wanted = Query("used", is_descending=True, limit=MOST, offset=7, filters={"user": "a", "broker": 3}, q="äb")
    assert parse(RESOURCES["throttled"], said) == wanted
    assert parse(RESOURCES["throttled"], {}) == Query("owed_ms", is_descending=True)


@pytest.mark.parametrize("text", ["", " 1", "1 ", "+1", "-1", "1.0", "1_0", "\u0661", "0x1", "10000000", "9" * 250])
def test_malformed_offset_is_refused_with_short_error(text: str) -> None:
    with pytest.raises(BadParameterError, match=r"^offset: .* is not a whole number from 0 to 1000000$") as failed:
        parse(RESOURCES["clients"], {"offset": text})
    assert len(str(failed.value)) < 200


def test_times_surrogates_and_infinities_become_valid_json() -> None:
    assert as_json(Moment(1_700_000_000.5)) == "2023-11-14T22:13:20.500Z"
    assert as_json("\ud800é") == "\\ud800é"
    assert as_json({"a": (float("inf"), float("nan"), True)}) == {"a": [None, None, True]}
    row = ThrottledRow("k", None, "c", 1, None, "r", 1.0, 2.0, 2.0, None, 5, 0, Moment(0), ("a:1",), 0, "enforce")
    assert as_json(row)["until"] == "1970-01-01T00:00:00.000Z"
    assert as_json(row)["peers"] == ["a:1"]
