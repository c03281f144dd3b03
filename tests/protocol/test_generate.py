import json

from protocol.generate.table import Row, Rows, merge, render


def row(version: int, response: str, *, api_key: int = 3, name: str = "Metadata", stable: bool = True) -> Row:
    return Row(api_key, name, version, stable, True, 1, 0, "topics:[name:string]", response)


def release(*rows: Row) -> Rows:
    return {(row.api_key, row.version): row for row in rows}


def test_layout_of_the_newer_release_wins_and_old_versions_stay() -> None:
    old = release(row(0, "a:i32"), row(1, "b:{c:i8}"))
    new = release(row(1, "b:{c:i8}?"), row(2, "d:i32"))
    assert [entry.response for entry in merge([old, new]).values()] == ["a:i32", "b:{c:i8}?", "d:i32"]


def test_equal_layouts_of_adjacent_versions_are_merged() -> None:
    rows = release(row(0, "a:i32"), row(1, "a:i32"), row(2, "b:i32"), row(3, "b:i32", stable=False), row(5, "b:i32"))
    (api,) = json.loads(render(rows))
    assert api["response"] == {"0-1": "a:i32", "2-3": "b:i32", "5-5": "b:i32"}
    assert api["request_header"] == {"0-3": 1, "5-5": 1}
    assert api["unstable"] == [3]


def test_apis_stand_in_order_of_their_keys_under_their_newest_names() -> None:
    rows = release(
        row(1, "", api_key=74, name="ListConfigResources"),
        row(0, "", api_key=74, name="ListClientMetricsResources"),
        row(0, ""),
    )
    assert [(api["key"], api["name"]) for api in json.loads(render(rows))] == [
        (3, "Metadata"),
        (74, "ListConfigResources"),
    ]
