"""What readers find of a table that changes while they list it: a listing is no moment."""

import json
from datetime import timedelta

import pytest
from pyspark.sql import DataFrame, DataFrameReader

from analysis.errors import AnalysisError
from analysis.spark.folder import Entry, Folder
from analysis.table import warehouse as tables
from analysis.table.swaps import Swap, replaced, steadily, unfinished
from analysis.upkeep.aside import recover
from tests.analysis.records import BEGIN, in_order, rows_of, stored
from tests.analysis.upkeep.conftest import DOCUMENTS, STREAM, Filled
from tests.analysis.upkeep.test_compaction import dying, forget_lock

SWAP = Swap("2026-03-01", 12, {"a": 1, "b": 2}, "new", 2)


def test_a_swap_that_was_listed_in_between_says_nothing() -> None:
    """Where renaming is copying, object by object; and where all that was there had gone when its turn came."""
    for files in ({}, {"a": 1}, {"a": 1, "b": 1}, {"b": 2, "new": 1}, {"new": 1}, {"a": 1, "b": 1, "new": 1}):
        assert replaced(SWAP, files) is None, files
    for files in ({"a": 1, "b": 2}, {"a": 1, "b": 2, "new": 1}):
        assert replaced(SWAP, files) == ["new"], files
    for files in ({"new": 2}, {"a": 1, "b": 1, "new": 2}, {"a": 1, "b": 2, "new": 2}):
        assert set(replaced(SWAP, files) or ()) == {"a", "b"}, files


def test_a_swap_is_read_as_it_was_written() -> None:
    assert Swap.of(SWAP.text) == SWAP


def without_counts(swap: Swap) -> str:
    """As it was written before the files of old partitions were counted."""
    return json.dumps({**json.loads(swap.text), "old": list(swap.old)})


def test_a_swap_without_counts_says_nothing_until_the_new_partition_is_whole() -> None:
    """What is there of the old ones may be a part: rows are lost by it where renaming is copying."""
    swap = Swap.of(without_counts(SWAP))
    assert replaced(swap, {"a": 1, "b": 2}) is replaced(swap, {"a": 1, "b": 2, "new": 1}) is None
    assert set(replaced(swap, {"a": 1, "new": 2}) or ()) == {"a", "b"}


@pytest.fixture
def half(busy: Filled, monkeypatch: pytest.MonkeyPatch) -> Filled:
    """Killed when some partitions of the first hour were aside."""
    with monkeypatch.context() as patched:
        dying(patched, 8)
        with pytest.raises(KeyboardInterrupt):
            busy.compact()
    forget_lock(busy)
    (swap,) = unfinished(busy.usage).values()
    assert 0 < len(busy.usage.names(f".replaced/*/{swap.hour_place}/batch=*")) < len(swap.old)
    return busy


@pytest.mark.spark
def test_what_fails_while_partitions_are_set_aside_is_read_again(half: Filled) -> None:
    """No swap is new meanwhile, nor is one done: the old partitions of one go, and a listing fails where one went."""
    found = []

    def read() -> str:
        found.append(len(unfinished(half.usage)))
        if len(found) == 1:
            recover(half.usage)
            raise AnalysisError("there is no such file")
        return "rows"

    assert steadily(half.usage, read) == "rows"
    assert found == [1, 0]


@pytest.mark.spark
def test_of_an_earlier_version_that_was_ended_when_the_new_partition_was_there(half: Filled) -> None:
    ((path, swap),) = unfinished(half.usage).items()
    half.usage.write(path, without_counts(swap))
    assert half.rows() == in_order(stored(DOCUMENTS))
    half.compact()
    assert half.rows() == in_order(stored(DOCUMENTS))
    assert unfinished(half.usage) == {}


@pytest.mark.spark
def test_of_an_earlier_version_that_was_ended_before_it_says_what_to_do(busy: Filled) -> None:
    batches = dict.fromkeys((f"{STREAM}-{number}" for number in range(4)), 1)
    swap = Swap("2026-03-01", 12, batches, f"compacted-0123456789ab-{STREAM}-0", 1)
    busy.usage.write(f".replaced/1-{swap.new}/{swap.name}", without_counts(swap))
    with pytest.raises(AnalysisError, match=rf"/usage/.*/{swap.name}: .*hour=12.* run `sluice analyze compact`"):
        busy.rows()
    for usage in busy.read(BEGIN + timedelta(hours=2)):
        assert rows_of(usage) == in_order(stored(DOCUMENTS[8:]))
    busy.compact()
    assert busy.rows() == in_order(stored(DOCUMENTS))
    assert len(busy.files("date=2026-03-01/hour=12")) == 1


@pytest.mark.spark
def test_keys_of_an_hour_that_is_swapped_while_it_is_listed_are_not_missed(
    filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pages, as an object store lists: the new one came on a page that was read, the old ones were on the next."""
    first, second = "1" + STREAM[1:], "f" + STREAM[1:]
    filled.publish(0, DOCUMENTS[:1], first)
    for number in (1, 2, 3):
        filled.publish(number, [DOCUMENTS[number]], second)
    for stream in (first, second):
        filled.publish(4, [{**DOCUMENTS[4], "instance": stream}], stream)
    parquet = DataFrameReader.parquet

    def crossed(reader: DataFrameReader, place: str) -> DataFrame:
        monkeypatch.setattr(DataFrameReader, "parquet", parquet)
        assert filled.compact().hours == 1
        return parquet(reader, f"{place}/batch={first}-0")

    monkeypatch.setattr(DataFrameReader, "parquet", crossed)
    keys = tables.stored_keys(filled.spark, filled.place, "2026-03-01", 12, "another-0")
    assert sorted(key.seq for key in keys) == [0, 1, 2, 3]


@pytest.mark.spark
def test_what_fails_while_nothing_changes_fails(half: Filled) -> None:
    tries: list[None] = []

    def read() -> None:
        tries.append(None)
        raise AnalysisError("no disk")

    with pytest.raises(AnalysisError, match="no disk"):
        steadily(half.usage, read)
    assert len(tries) == 1


@pytest.mark.spark
def test_an_hour_that_is_swapped_while_it_is_listed_is_not_missed(
    busy: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new partition came after its directory was read, and the old ones went before they were."""
    rows, real = busy.rows(), Folder.entries
    late: list[str] = []

    def entries(folder: Folder, pattern: str) -> list[Entry]:
        found = real(folder, pattern)
        if "hour=12/batch=" in pattern and not late:
            late.append(pattern)
            busy.compact()
            return [each for each in found if folder.exists(each.path)]
        return found

    monkeypatch.setattr(Folder, "entries", entries)
    assert rows_of(tables.usage(busy.spark, busy.place)) == rows
    assert late


@pytest.mark.spark
def test_of_a_period_beside_a_swap_under_way(half: Filled) -> None:
    """Its hour is not listed, which says nothing of it."""
    after = BEGIN + timedelta(hours=1)
    for usage in half.read(after):
        assert {each["seq"] for each in rows_of(usage)} == {each["seq"] for each in DOCUMENTS[4:]}


@pytest.mark.spark
def test_removal_that_is_cut_off_brings_no_swap_back(busy: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory goes file by file, in any order. What the swap had made may have been replaced since."""
    busy.compact()
    remove = Folder.remove

    def cut_off(folder: Folder, name: str) -> None:
        if name.startswith(".replaced/") and name.count("/") == 1:
            for done in folder.names(f"{name}/*.done"):
                remove(folder, f"{name}/{done}")
            raise KeyboardInterrupt
        remove(folder, name)

    monkeypatch.setattr(Folder, "remove", cut_off)
    busy.now_s += 86_400
    with pytest.raises(KeyboardInterrupt):
        busy.compact()
    assert unfinished(busy.usage) == {}
