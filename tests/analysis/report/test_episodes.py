"""Pages of episodes for the search: all that there are, in order, each of bounded size and harmless."""

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from analysis.report import episodes
from analysis.report.episodes import PAGE_BYTES, PAGE_ROWS, files, pages
from tests.analysis.report.sample import BEGIN, NAMES, SCRIPT


def recorded(count: int, **same: Any) -> list[dict[str, Any]]:
    """So many episodes of the clients in NAMES, in turn, one a minute."""
    return [
        {
            "begin": BEGIN + timedelta(minutes=number),
            "end": BEGIN + timedelta(minutes=number, seconds=number % 100),
            "cluster": "demo",
            "user": NAMES[number % len(NAMES)][0],
            "client_id": NAMES[number % len(NAMES)][1],
            "broker": number % 3,
            "kind": "produce",
            "rule": f"user={NAMES[number % len(NAMES)][0][:9]}",
            "mode": "enforce",
            "muted_ms": 1000 + number,
            "throttled": number,
            "limit": 1024.0,
            **same,
        }
        for number in range(count)
    ]


def written(found: Sequence[dict[str, Any]], batch: int = 10_000) -> dict[str, Any]:
    """Contents by the names of files; each has called with its own name."""
    made: dict[str, Any] = {}
    batches = pa.Table.from_pylist(list(found)).to_batches(max_chunksize=batch)
    for name, content in files(row for page in pages(batches) for row in page.to_pylist()):
        assert content.startswith(f'sluiceFound("{name}",')
        assert content.endswith(");\n")
        assert content.isascii()
        assert "<" not in content
        assert len(content) < PAGE_BYTES + 10_000
        made[name] = json.loads(content.removeprefix(f'sluiceFound("{name}",').removesuffix(");\n"))
    return made


@pytest.mark.parametrize("batch", [700, 10_000])
def test_all_episodes_are_in_a_page_that_the_index_names(batch: int) -> None:
    found = recorded(5000)
    made = written(found, batch)
    index = made["index"]
    shown = [row for number in range(len(index["pages"])) for row in made[f"page-{number}"]]
    assert [row[0] for row in shown] == [each["begin"].timestamp() for each in found]
    assert [row[9] for row in shown] == list(range(5000))
    assert all(len(made[f"page-{number}"]) <= PAGE_ROWS for number in range(len(index["pages"])))
    for number, (begin, end) in enumerate(index["pages"]):
        assert begin == min(row[0] for row in made[f"page-{number}"])
        assert end == max(row[1] for row in made[f"page-{number}"])
    assert f"page-{len(index['pages'])}" not in made


def test_the_index_of_clients_says_where_and_how_much() -> None:
    found = recorded(4001)
    made = written(found)
    clients = {(row[0], row[1]): row[2:] for row in made["clients-0"]}
    assert made["index"]["clients"] == 1
    assert len(clients) == len(NAMES)
    assert clients["alice", "orders-service"] == [
        401,
        sum(each["muted_ms"] for each in found if each["user"] == "alice"),
        "0-2",
    ]
    assert clients["bob", SCRIPT][2] == "0-1"
    assert episodes._ranges([7, 0, 1, 1, 2, 9, 10]) == "0-2,7,9-10"


def test_names_without_end_are_cut_and_pages_stay_small() -> None:
    found = recorded(1500, rule="user=" + "x" * 10_000, client_id="\u202e" * 1000)
    made = written(found)
    assert len(made["index"]["pages"]) > 1, "by their size alone"
    row = made["page-0"][0]
    assert len(row[6]) == episodes._MOST_OF_A_NAME + 1
    assert row[3].startswith("\\u202e")
    assert row[10] == "1 KiB/s"


def test_many_clients_have_pages_of_their_own() -> None:
    found = [{**each, "user": f"user-{number:05d}"} for number, each in enumerate(recorded(2 * PAGE_ROWS + 1))]
    made = written(found)
    assert made["index"]["clients"] == 3
    assert [made[f"clients-{number}"][0][0] for number in range(3)] == ["user-00000", "user-02000", "user-04000"]


def test_no_episodes_have_an_index_alone() -> None:
    assert written([]) == {"index": {"pages": [], "clients": 0}}
