"""``compact``, ``expire`` and ``summarize`` in S3, ended after each change of an object: ``stepped_upkeep.py FOLDER
[summarize]``, in a process of its own, because a session of Spark that knows S3 cannot be had beside another one.

A rename is there a copy and a removal of each object. The store refuses whatever follows a change, which leaves what a
kill would; then readers look, and the next run puts it right.
"""

import json
import sys
import time
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Final

import pyarrow.fs as pafs
import pyarrow.parquet as pq

from analysis.errors import AnalysisError, RunError
from analysis.metrics import keepings
from analysis.metrics.period import look
from analysis.spark import session
from analysis.spark.session import SparkSettings
from analysis.table import warehouse as tables
from analysis.table.scan import UsageRows
from analysis.table.swaps import unfinished
from analysis.upkeep import lock
from tests.analysis.records import BEGIN, Document, document, in_order, row, rows_of, stored
from tests.analysis.upkeep.conftest import GRACE_S, STREAM, Filled
from tests.analysis.upkeep.days import DAY_S, MIDNIGHT, recorded, sum_up, usage
from tests.harness.object_store import ObjectStore

LATE_S: Final = 700
"""After so long a lock is of nobody."""
HOUR_S: Final = 3600
DOCUMENTS: Final = [
    document(seq, [row("alice", bytes_in=seq), row("bob")], second=second)
    for seq, second in enumerate((1, 2, 3, 4, HOUR_S))
]
"""An hour of two batches with two files each, and the newest hour."""
OLD: Final = [document(seq, [row("carol")], second=-DAY_S) for seq in (100, 101)]
"""In two files, too."""
KEEP_S: Final = DAY_S // 2
Keys = list[tuple[str, int, str]]


class Steps:
    """A warehouse in a bucket, and copies of it that are worked on."""

    def __init__(self, store: ObjectStore, folder: Path) -> None:
        conf = {
            "spark.driver.memory": "1g",
            "spark.local.dir": str(folder),
            # Objects of a directory go one by one, as of thousands they would page by page.
            "spark.hadoop.fs.s3a.bulk.delete.page.size": "1",
            "spark.hadoop.fs.s3a.attempts.maximum": "1",
            "spark.hadoop.fs.s3a.retry.limit": "0",
        }
        self._store = store
        self.spark = session.start("steps", SparkSettings("local[2]", store.settings | conf))
        self.spark.sparkContext.setLogLevel("OFF")
        self._files = pafs.S3FileSystem(
            access_key=store.key,
            secret_key=store.key,
            endpoint_override=store.address,
            scheme="http",
            region="us-east-1",
        )
        first = self.at("first")
        first.publish(0, DOCUMENTS[:2])
        first.publish(1, DOCUMENTS[2:4])
        first.publish(2, OLD)
        first.publish(3, DOCUMENTS[4:])

    def ended_everywhere(self, name: str, work: Callable[[Filled], object], may_go: Collection[int] = ()) -> Filled:
        """Let one change more through each time; returns the warehouse after all of them. ``may_go``: documents that
        need not be found, and not at all at the end.
        """
        keys = [key for each in (*DOCUMENTS, *OLD) for key in self._keys_of(each)]
        kept = sorted(key for key in keys if key[1] not in may_go)
        for step in count():
            one = self._copy(f"{name}-{step}")
            self._store.let_through(step)
            try:
                work(one)
                is_over = True
            except (AnalysisError, RunError):
                is_over = False
            made = self._store.let_through(None)
            assert is_over or made == step, (step, made)
            found = self.listed(one.paths())
            assert found == sorted(set(found)), step
            assert set(kept) <= set(found) <= set(keys), step
            one.now_s += LATE_S
            work(one)
            assert self.listed(tables.usage(self.spark, one.place).paths()) == kept, step
            assert unfinished(one.usage) == {}, step
            assert one.usage.names(".compacting*") == [], step
            assert [json.loads(one.usage.read(name))["over"] for name in one.usage.names(".upkeep*")] == [True], step
            if is_over:
                print(f"{name}: {step} steps", flush=True)
                return one
        raise AssertionError

    def cut_off(self, name: str, one: Filled, check: Callable[[int], None]) -> None:
        """Sum up with one change more each time, beginning with what the time before has left."""
        for step in count():
            self._store.let_through(step)
            try:
                sum_up(one)
                is_over = True
            except (AnalysisError, RunError):
                is_over = False
            made = self._store.let_through(None)
            assert is_over or made == step, (step, made)
            check(step)
            if is_over:
                print(f"{name}: {step} steps", flush=True)
                return
            one.now_s += LATE_S

    def listed(self, paths: list[str]) -> Keys:
        """What rows there are in files that our own readers would open."""
        found: Keys = []
        for path in paths:
            table = pq.read_table(path.removeprefix("s3a://"), filesystem=self._files)
            found += [(each["instance"], each["seq"], each["user"]) for each in table.to_pylist()]
        return sorted(found)

    def _keys_of(self, each: dict[str, object]) -> Keys:
        return [(each["instance"], each["seq"], each["user"]) for each in stored([each])]

    def at(self, name: str) -> Filled:
        """A warehouse of the bucket."""
        return Filled(self.spark, f"s3a://{self._store.bucket}/{name}")

    def _copy(self, name: str) -> Filled:
        root = f"{self._store.bucket}/first"
        for each in self._files.get_file_info(pafs.FileSelector(root, recursive=True)):
            if each.is_file:
                self._files.copy_file(each.path, each.path.replace(root, f"{self._store.bucket}/{name}", 1))
        return self.at(name)


def compact(steps: Steps) -> None:
    one = steps.ended_everywhere("compact", lambda one: one.compact())
    assert rows_of(tables.usage(steps.spark, one.place)) == in_order(stored([*OLD, *DOCUMENTS]))
    assert len(one.usage.entries("date=2026-03-01/hour=12/batch=*/*.parquet")) == 1
    one.now_s += GRACE_S
    assert one.compact().removed_bytes > 0
    assert one.usage.names(".replaced/*") == []
    assert len(rows_of(tables.usage(steps.spark, one.place))) == 2 * len(DOCUMENTS) + len(OLD)


def expire(steps: Steps) -> None:
    one = steps.ended_everywhere("expire", lambda one: one.expire(keep_s=KEEP_S), may_go=[each["seq"] for each in OLD])
    assert rows_of(tables.usage(steps.spark, one.place)) == in_order(stored(DOCUMENTS))


def rejected(steps: Steps) -> None:
    """A directory is there as old as the question; what is in it is as old as it is."""
    one = steps.at("rejected")
    one.publish(0, [document(0, [row("alice")], second=time.time() - BEGIN.timestamp())])
    one.warehouse.write("rejected/batch=0/part.parquet", "")
    one.now_s = time.time()
    assert one.expire(keep_s=0).rejected == 1
    assert one.warehouse.names("rejected/*") == []


def summarize(steps: Steps, folder: Path) -> None:
    """Sums count as a whole, or not at all; those of a day that was changed go, of which nothing counts either."""
    begin, end = MIDNIGHT + timedelta(days=1), MIDNIGHT + timedelta(days=2)
    documents = [each for each in recorded() if begin <= _time(each) < end]
    late = document(9000, [row("late")], second=DAY_S)
    lake, here = steps.at("days"), Filled(steps.spark, str(folder / "days"))
    expected: list[dict[str, list[str]]] = []
    for of_batch in (documents, [late]):
        here.publish_hours(len(expected), of_batch)
        sum_up(here)
        expected.append(kept(usage(here, begin, end)))
    assert expected[0] != expected[1]

    lake.publish_hours(0, documents)

    def check_first(step: int) -> None:
        assert kept(usage(lake, begin, end)) in ({}, expected[0]), step

    steps.cut_off("summarize", lake, check_first)
    assert kept(usage(lake, begin, end)) == expected[0]
    lake.publish_hours(1, [late])
    assert sum_up(lake).days == 1
    lake.now_s = time.time() + DAY_S
    (batch,) = (each.path for each in lake.usage.entries(f"date=*/hour=*/batch={STREAM}-1"))

    def check_second(step: int) -> None:
        assert kept(usage(lake, begin, end)) == expected[1], step
        lake.usage.move(batch, ".gone")  # as it is for a moment while it is published again
        assert kept(usage(lake, begin, end)) in ({}, expected[0]), step
        lake.usage.move(".gone", batch)

    steps.cut_off("sums removed", lake, check_second)
    assert len(lake.warehouse.names("summaries/date=*/*")) == 1


def _time(each: Document) -> datetime:
    return datetime.fromtimestamp(each["time_ms"] / 1000, UTC)


def kept(found: UsageRows) -> dict[str, list[str]]:
    """What there is of days that are summed up, by table."""
    if found.kept is None:
        return {}
    tables = {}
    whole = look(found)
    assert whole is not None
    for name in (each.name for each in keepings.of_day(found, whole)):
        files = (each.asDict() for each in found.kept.files(name).collect())
        contents = (each.get("content") or Path(each["path"].removeprefix("file:")).read_bytes() for each in files)
        tables[name] = sorted(str(row) for content in contents for row in pq.read_table(BytesIO(content)).to_pylist())
    return tables


if __name__ == "__main__":
    with ObjectStore(Path(sys.argv[1])) as store:
        setattr(lock, "_SETTLED_S", 0.0)  # noqa: B010  of which there is one here
        steps = Steps(store, Path(sys.argv[1]))
        if sys.argv[2:] == ["summarize"]:
            summarize(steps, Path(sys.argv[1]))
        else:
            expire(steps)
            rejected(steps)
            compact(steps)
        steps.spark.stop()
