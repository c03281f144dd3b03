"""Generated records are records: of the documented format, with consequences of quotas in them, the same every time."""

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.analysis.generated import SUMS, Generated, World, generate
from bench.analysis.population import INSTANCES
from proxy.usage.records import COLUMNS
from quotas.stores.file import load

WORLD = World("small", clients=400, rows_per_s=150, rows=20_000)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("worlds")


@pytest.fixture(scope="module")
def world(cache: Path) -> Generated:
    return generate(WORLD, cache)


@pytest.fixture(scope="module")
def documents(world: Generated) -> list[dict[str, Any]]:
    return read(world)


def read(world: Generated) -> list[dict[str, Any]]:
    files = sorted(world.documents_folder.glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def test_columns_are_those_of_the_proxy(documents: list[dict[str, Any]]) -> None:
    for document in documents:
        columns = document["rows"]
        assert set(columns) == set(COLUMNS)
        assert len({len(values) for values in columns.values()}) == 1
        assert 0 < len(columns["user"]) <= 1000


def test_documents_of_a_process_are_numbered_without_gaps(documents: list[dict[str, Any]]) -> None:
    numbers = defaultdict(list)
    for document in documents:
        numbers[document["instance"], document["boot"]].append(document["seq"])
    assert len(numbers) == INSTANCES
    assert all(seen == list(range(len(seen))) for seen in numbers.values())


def test_sums_of_a_world_match_its_documents(world: Generated, documents: list[dict[str, Any]]) -> None:
    assert world.documents == len(documents)
    assert world.rows == sum(len(document["rows"]["user"]) for document in documents) >= WORLD.rows
    for name in SUMS:
        assert world.sums[name] == sum(sum(document["rows"][name]) for document in documents)


def test_client_muted_for_a_whole_second_sends_nothing(documents: list[dict[str, Any]]) -> None:
    muted = 0
    for document in documents:
        columns = document["rows"]
        for kind in ("produce", "fetch"):
            for muted_ms, sent in zip(columns[f"{kind}_muted_ms"], columns[f"{kind}_bytes"], strict=True):
                assert 0 <= muted_ms <= 1000
                if muted_ms == 1000:
                    assert sent == 0
                    muted += 1
    assert muted > 0


def test_throttle_times_come_with_throttled_requests_and_a_rule(documents: list[dict[str, Any]]) -> None:
    for document in documents:
        columns = document["rows"]
        for kind in ("produce", "fetch"):
            names = (f"{kind}_throttle_ms", f"{kind}_throttled", f"{kind}_limit", f"{kind}_rule")
            for throttle_ms, throttled, limit, rule in zip(*(columns[name] for name in names), strict=True):
                assert not throttle_ms or throttled
                assert not throttled or limit is not None
                assert (limit is None) == (rule is None)


def test_busiest_clients_make_a_third_of_requests(documents: list[dict[str, Any]]) -> None:
    requests: dict[object, int] = defaultdict(int)
    for document in documents:
        columns = document["rows"]
        for client_id, count in zip(columns["client_id"], columns["requests"], strict=True):
            requests[client_id] += count
    busiest = sorted(requests.values(), reverse=True)[: WORLD.clients // 20]
    assert sum(busiest) > sum(requests.values()) / 3


def test_a_longer_world_begins_as_a_shorter_one(cache: Path, documents: list[dict[str, Any]]) -> None:
    longer = read(generate(replace(WORLD, rows=2 * WORLD.rows), cache))
    beginning = [document for document in longer if document["time_ms"] in {each["time_ms"] for each in documents}]
    assert beginning == documents


def test_a_world_is_made_once(cache: Path, world: Generated) -> None:
    made = world.folder.stat().st_mtime_ns
    assert generate(WORLD, cache) == world
    assert world.folder.stat().st_mtime_ns == made


def test_interrupted_world_is_generated_again(tmp_path: Path) -> None:
    unfinished = (tmp_path / WORLD.key).with_suffix(".part")
    unfinished.mkdir()
    (unfinished / "documents").write_text("half", encoding="utf-8")
    assert generate(WORLD, tmp_path).rows >= WORLD.rows
    assert not unfinished.exists()


@pytest.mark.parametrize("name", ["in-force.yaml", "proposed.yaml"])
def test_quota_files_can_be_loaded(world: Generated, name: str) -> None:
    loaded = load(world.folder / name)
    assert not loaded.warnings


def test_more_rows_than_clients_can_make_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot make 4000 rows a second"):
        generate(replace(WORLD, rows_per_s=4000), tmp_path)
