"""From ingestion to reports of days that are summed up, in S3: ``summed_in_s3.py FOLDER [reports]``, in a process
of its own, because a session of Spark that knows S3 cannot be had beside another one.
"""

import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Barrier

from click.testing import CliRunner

from analysis.cli import analyze
from analysis.spark import session
from analysis.spark.folder import Folder
from analysis.spark.session import SparkSettings
from analysis.table.summaries import day_of
from tests.analysis.records import Document, document, row, write_jsonl
from tests.analysis.upkeep.conftest import Filled
from tests.analysis.upkeep.days import DATES, DAY_S, MIDNIGHT, assert_alike, of_clients, recorded, report, usage
from tests.harness.object_store import ObjectStore

LATE_DAY = "2026-03-03"
OTHER_DAY = "2026-03-04"


def ran(command: str, *arguments: str) -> str:
    """What a command says."""
    done = CliRunner().invoke(analyze, [command, *arguments])
    assert done.exit_code == 0, (command, done.output, done.exception)
    return done.stdout


def ingest(place: str, folder: Path, name: str, documents: Iterable[Document]) -> None:
    folder.mkdir(exist_ok=True)
    write_jsonl(folder / f"{name}.jsonl", list(documents))
    print(ran("ingest", "--warehouse", place, "--files", str(folder), "--once"), flush=True)


def check(place: str, folder: Path, *, reports: bool) -> None:
    ingest(place, folder / "records", "first", recorded())
    assert f": {DATES} days, " in ran("summarize", "--warehouse", place)
    lake = Filled(session.start("s3"), place)
    begin, end = (MIDNIGHT + timedelta(hours=hours) for hours in (30, 110))
    whole = usage(lake, begin, end)
    assert whole.kept_days == tuple(map(day_of, (LATE_DAY, OTHER_DAY)))
    assert of_clients(whole) == of_clients(usage(lake, begin, end, summed_up=False))
    if reports:
        made = [report(lake, folder / name, begin, end, summed_up=name == "sums") for name in ("rows", "sums")]
        assert_alike(lake.spark, *made)

    late = document(9000, [row("late", bytes_in=5)], second=2 * DAY_S, boot="boot-2")
    ingest(place, folder / "records", "late", [late])
    changed = usage(lake, begin, end)
    assert changed.kept_days == (day_of(OTHER_DAY),)
    assert "late" in {each.user for each in of_clients(changed)}
    assert ": 1 day, " in ran("summarize", "--warehouse", place)
    again = usage(lake, begin, end)
    assert again.kept_days == whole.kept_days
    assert of_clients(again) == of_clients(changed)


def check_one_creates(place: str) -> None:
    """Of several who begin to write a file in one moment."""
    folder = Folder(session.start("s3"), place)
    for each in range(5):
        begin = Barrier(4)

        def create(who: int, name: str = f"made-{each}", begin: Barrier = begin) -> bool:
            begin.wait()
            return folder.create(name, f"{who}")

        with ThreadPoolExecutor(4) as pool:
            made = list(pool.map(create, range(4)))
        assert made.count(True) == 1, made
        assert folder.read(f"made-{each}") == f"{made.index(True)}"


if __name__ == "__main__":
    folder, *reports = sys.argv[1:]
    with ObjectStore(Path(folder)) as store:
        settings = {"spark.driver.memory": "1g", "spark.local.dir": folder, "spark.sql.shuffle.partitions": "2"}
        spark = session.start("s3", SparkSettings("local[2]", store.settings | settings))
        spark.sparkContext.setLogLevel("ERROR")
        check(f"s3a://{store.bucket}/usage", Path(folder), reports=reports == ["reports"])
        check_one_creates(f"s3a://{store.bucket}/locks")
        spark.stop()
