"""Compaction: the same rows before and after, for every reader, whatever is killed when."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from analysis.cli import analyze
from analysis.errors import AnalysisError, RunError
from analysis.spark.folder import Folder
from analysis.table import warehouse as tables
from analysis.table.lateness import late_files
from analysis.table.swaps import unfinished
from analysis.upkeep import compaction, lock
from analysis.upkeep.proof import Proof
from analysis.upkeep.rewriting import proof_of
from tests.analysis.records import document, in_order, row, rows_of, stored
from tests.analysis.upkeep.conftest import DOCUMENTS, GRACE_S, STREAM, Filled
from tests.analysis.upkeep.test_lock import until_renewed

pytestmark = pytest.mark.spark


def test_closed_hours_become_one_file_each_with_the_same_rows(busy: Filled) -> None:
    rows, keys = busy.rows(), busy.keys()
    found = busy.compact()
    assert (found.hours, found.files, found.files_made, found.rows) == (2, 8, 2, 16)
    assert [len(busy.files(f"date=2026-03-01/hour={hour}")) for hour in (12, 13, 14)] == [1, 1, 4]
    assert busy.rows() == rows == in_order(stored(DOCUMENTS))
    assert busy.keys() == keys
    assert busy.compact().hours == 0


def test_a_dry_run_changes_nothing(busy: Filled) -> None:
    files = busy.files()
    found = busy.compact(dry_run=True)
    assert (found.hours, found.files) == (2, 8)
    assert busy.files() == files
    assert len(busy.told) == 2
    assert "would be compacted" in busy.told[0]
    assert busy.usage.names(".*") == []


def test_what_ended_too_lately_is_left(busy: Filled) -> None:
    assert busy.compact(older_s=2 * 86_400 - 3600).hours == 1
    assert busy.compact(older_s=3 * 86_400).hours == 0


def test_a_batch_that_may_come_again_is_left(filled: Filled) -> None:
    """It is the last of its stream, and no checkpoint in the warehouse says that it is committed."""
    for number in range(3):
        filled.publish(number, [{**DOCUMENTS[number], "instance": "edge-2"}], stream="other")
    filled.publish(0, DOCUMENTS[4:])
    assert filled.compact().files == 2
    assert len(filled.files("date=2026-03-01/hour=12")) == 2
    filled.commit(2, stream="other")
    assert filled.compact().files == 2
    assert len(filled.files("date=2026-03-01/hour=12")) == 1


def test_a_checkpoint_that_was_put_back_has_not_committed_what_follows(busy: Filled) -> None:
    busy.commit(1)
    assert busy.compact().files == 2


def test_what_came_late_is_told_from_the_others(busy: Filled) -> None:
    busy.compact()
    late = document(99, [row("carol")], second=5)
    busy.publish(50, [late])
    busy.publish(52, [document(98, [row("carol")], second=6)])
    busy.publish(53, [document(97, [row("dan")], second=9000)])
    assert busy.compact().files == 2
    assert len(busy.files("date=2026-03-01/hour=12")) == 2
    (late_file,) = late_files(tables.usage(busy.spark, busy.place).paths())
    assert f"-{STREAM}-50/" in late_file
    assert busy.keys().count(("edge-1", 99, "carol")) == 1


def test_files_that_are_large_already_are_left(busy: Filled) -> None:
    size_bytes = max(file.stat().st_size for file in Path(busy.place).rglob("*.parquet"))
    assert busy.compact(target_bytes=size_bytes).hours == 0


def test_rows_that_would_differ_are_not_believed(busy: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    files = busy.files()
    monkeypatch.setattr(compaction, "proof_of", lambda *_: Proof(8, 1))
    with pytest.raises(RunError, match=r"nothing was changed"):
        busy.compact()
    assert busy.files() == files


def test_a_batch_that_an_ingestion_replaces_meanwhile_is_not_lost(
    busy: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replaced(*arguments: Any) -> Proof:
        busy.publish(0, [DOCUMENTS[0], document(77, [row("dora")], second=7)])
        return proof_of(*arguments)

    monkeypatch.setattr(compaction, "proof_of", replaced)
    with pytest.raises(RunError, match="was changed by another program"):
        busy.compact()
    assert busy.keys().count(("edge-1", 77, "dora")) == 1


def test_what_this_sluice_does_not_know_is_not_lost(busy: Filled, spark: Any) -> None:
    (file,) = Path(busy.place).glob(f"usage/*/hour=12/batch={STREAM}-0/*.parquet")
    with_more = spark.read.parquet(str(file)).selectExpr("*", "1 AS later").toArrow()
    import pyarrow.parquet as pq

    pq.write_table(with_more, file)
    with pytest.raises(AnalysisError, match=r"columns that this Sluice does not know \(later\)"):
        busy.compact()


def dying(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Let so many changes of a folder through, and no more."""
    left = [None] * after

    def changing(real: Any) -> Any:
        def change(*arguments: Any) -> Any:
            if not left:
                raise KeyboardInterrupt
            left.pop()
            return real(*arguments)

        return change

    for name in ("create", "put", "move", "remove"):
        monkeypatch.setattr(Folder, name, changing(getattr(Folder, name)))


def forget_lock(one: Filled) -> None:
    """Its process would be no more."""
    for name in one.usage.names(".upkeep*"):
        one.usage.remove(name)


def test_killed_at_any_step_no_row_is_lost_or_doubled(
    filled: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor found twice meanwhile by our own readers; by others only until the next run."""
    for number in (0, 1, 2, 11):
        filled.publish(number, [DOCUMENTS[number]])
    keys = filled.keys()
    step, killed = 0, True
    while killed:
        place = shutil.copytree(filled.place, tmp_path / f"{step}")
        one = Filled(filled.spark, str(place))
        with monkeypatch.context() as patched:
            dying(patched, step)
            try:
                one.compact()
                killed = False
            except KeyboardInterrupt:
                pass
        forget_lock(one)
        assert set(one.keys()) == set(keys), step
        if unfinished(one.usage):
            assert one.listed() == keys, step
        one.compact()
        assert one.keys() == keys, step
        assert len(one.files("date=2026-03-01/hour=12")) == 1, step
        assert unfinished(one.usage) == {}
        assert one.usage.names(".compacting*") == []
        step += 1
    assert step > 10


def test_who_had_listed_the_table_before_reads_on(busy: Filled) -> None:
    before = busy.read()
    busy.compact()
    assert [rows_of(each) for each in before] == [in_order(stored(DOCUMENTS))] * 2
    busy.now_s += GRACE_S + 1
    assert busy.compact().removed_bytes > 0
    assert busy.usage.names(".replaced/*") == []


def test_the_table_is_listed_while_it_is_compacted(busy: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that lists it at any moment between two changes finds each row once."""
    found: list[int] = []
    move = Folder.move

    def looked_at(folder: Folder, name: str, to: str) -> None:
        move(folder, name, to)
        found.append(sum("hour=12" in path for path in busy.paths()))

    monkeypatch.setattr(Folder, "move", looked_at)
    busy.compact()
    assert set(found) == {4, 1}
    assert len(found) == 12


def test_it_is_at_work_however_long_an_hour_takes_to_be_set_aside(
    busy: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where renaming is copying."""
    move, refused = Folder.move, []

    def slow(folder: Folder, name: str, to: str) -> None:
        if name.startswith("date="):
            busy.now_s += 10_000
            until_renewed(folder, busy.now_s)
            with pytest.raises(AnalysisError, match="is at work"):
                busy.expire(keep_s=0)
            refused.append(name)
        move(folder, name, to)

    monkeypatch.setattr(lock, "_RENEWED_S", 0.01)
    monkeypatch.setattr(Folder, "move", slow)
    busy.compact()
    assert len(refused) == 8


def test_a_document_that_comes_again_after_compaction_is_known(busy: Filled) -> None:
    """Even to the very batch that had stored it: a checkpoint that lost its commits."""
    busy.compact()
    keys = tables.stored_keys(busy.spark, busy.place, "2026-03-01", 12, f"{STREAM}-0")
    assert sorted(key.seq for key in keys) == [0, 1, 2, 3]


def test_the_command_counts_one_as_one(spark: SparkSession, warehouse: str) -> None:
    filled = Filled(spark, warehouse)
    for number, second in enumerate((0, 1, 3600)):
        filled.publish(number, [document(number, [row()], second=second)])
    for more, said in (
        (["--dry-run"], "1 hour of 2 files, "),
        ([], "1 hour, 2 rows: 2 files of "),
    ):
        ran = CliRunner().invoke(analyze, ["compact", "--warehouse", warehouse, *more])
        assert ran.exit_code == 0, (ran.output, ran.exception)
        assert f"{warehouse}: {said}" in ran.stdout
    ran = CliRunner().invoke(analyze, ["expire", "--warehouse", warehouse, "--keep", "1s", "--dry-run"])
    assert "1 hour of 0.0 MB, 0 batches of rejected documents, 0 days of sums and 0 reports would go" in ran.stdout
