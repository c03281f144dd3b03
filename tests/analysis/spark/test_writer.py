"""A warehouse has one writer at a time, and what it publishes is complete after a kill."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from analysis.errors import RunError
from analysis.spark import writer
from analysis.spark.folder import Folder
from analysis.spark.writer import ASIDE, Writer
from tests.harness.clock import Clock
from tests.harness.polling import wait_until

pytestmark = pytest.mark.spark


class Site:
    """A warehouse, and its writers, whose clock goes on while they wait."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.spark, self.root = spark, root
        self.folder = Folder(spark, root)
        self.clock = Clock()

    def writer(self, what: str = "compact") -> Writer:
        return Writer(self.spark, self.root, what, self.clock)

    def held(self, number: int = 7, **said: Any) -> None:
        plain = {"id": "another", "what": "ingest", "host": "elsewhere", "pid": 5, "machine": "elsewhere"}
        times = {"since_s": 900.0, "renewed_s": 1000.0}
        self.folder.write(f".writer-{number}", json.dumps({**plain, "state": "writing", **times, **said}))

    def queue(self) -> list[str]:
        return self.folder.names(".writer-*")

    def said(self, name: str) -> dict[str, Any]:
        found = json.loads(self.folder.read(name))
        assert isinstance(found, dict)
        return found


@pytest.fixture
def site(spark: SparkSession, warehouse: str, monkeypatch: pytest.MonkeyPatch) -> Site:
    site = Site(spark, warehouse)

    def sleep(seconds: float) -> None:
        site.clock.now_s += seconds

    monkeypatch.setattr(writer, "time", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(writer, "_POLL_S", 30)
    return site


def gone() -> int:
    """The id of a process that is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_numbers_grow_and_the_last_file_stays(site: Site) -> None:
    with site.writer() as first:
        assert (first.number, site.said(".writer-1")["state"]) == (1, "writing")
    with site.writer() as second:
        assert second.number == 2
    assert site.queue() == [".writer-2"]
    assert site.said(".writer-2")["state"] == "over"


def test_writers_write_one_after_the_other(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "time", SimpleNamespace(sleep=lambda _: time.sleep(0.01)))
    inside: list[int] = []
    numbers: list[int] = []

    def write(_: int) -> None:
        for _ in range(10):
            with site.writer() as turn:
                inside.append(turn.number)
                assert inside == [turn.number]
                numbers.append(turn.number)
                assert inside.pop() == turn.number

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert numbers == sorted(set(numbers))
    assert len(numbers) == 40


def test_long_wait_names_the_writer_once_and_ends_after_an_hour(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.held(renewed_s=1e9)
    name = r"ingest \(process 5 on elsewhere\)"
    with pytest.raises(
        RunError, match=rf"^{name} has been writing to this warehouse since 1970-01-01 00:15:00 UTC: end"
    ):
        site.writer().__enter__()
    assert site.clock.now_s - 1000 == pytest.approx(3600, abs=31)
    (told,) = capsys.readouterr().err.splitlines()
    assert re.match(rf"compact waits: {name} has been writing to this warehouse since 1970-01-01 00:15:00 UTC$", told)
    assert site.queue() == [".writer-7"], "who does not wait any more is not in the queue"


def test_killed_writer_of_this_machine_is_known_to_be_dead(site: Site) -> None:
    site.held(machine=writer._machine(), pid=gone())
    with site.writer() as found:
        assert found.number == 8
        assert site.queue() == [".writer-8"]


def test_process_with_the_same_id_as_before_a_restart_is_another(site: Site) -> None:
    """In a container the first process has the id 1 each time."""
    site.held(machine=writer._machine(), pid=os.getpid())
    with site.writer():
        assert site.queue() == [".writer-8"]


def test_writer_of_another_machine_is_dead_after_ten_minutes(site: Site) -> None:
    site.held()
    with site.writer():
        assert site.clock.now_s == pytest.approx(1600, abs=31)


def test_half_written_file_is_as_old_as_its_time(site: Site) -> None:
    site.clock.now_s = begun_s = time.time()
    site.folder.write(".writer-7", '{"id": ')
    with site.writer():
        assert site.clock.now_s - begun_s == pytest.approx(600, abs=31)


def test_writer_that_was_taken_over_publishes_nothing(site: Site) -> None:
    with site.writer() as slow:
        slow.publish(writes={"a": "1"})
        site.held(8)
        with pytest.raises(RunError, match=r"ingest \(process 5 on elsewhere\) has taken over"):
            slow.publish(writes={"a": "2"})
    assert site.folder.read("a") == "1"


def test_waiting_for_a_turn_is_not_taking_over(site: Site) -> None:
    with site.writer() as first:
        site.held(8, state="waiting")
        first.publish(writes={"a": "1"})


def test_number_that_was_used_meanwhile_is_given_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer begins and ends, and a third begins, between a look at the queue and the creation of a file."""
    create = Folder.create
    third = site.writer("expire")

    def late(folder: Folder, name: str, content: str) -> bool:
        monkeypatch.setattr(Folder, "create", create)
        with site.writer():
            pass
        third.__enter__()
        return create(folder, name, content)

    monkeypatch.setattr(Folder, "create", late)
    slow = site.writer()
    slow._join()
    assert slow._ahead()["what"] == "expire"
    assert (slow.number, site.queue()) == (3, [".writer-2", ".writer-3"])
    third.__exit__(None, None, None)
    assert not slow._ahead()


def test_store_that_ignores_conditions_has_one_writer(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both write the same file, and look at it once more when both have written."""
    both = Barrier(2, timeout=60)
    create = Folder.create
    site.folder.write("sluice-warehouse.json", "")

    def ignoring(folder: Folder, name: str, content: str) -> bool:
        if name != ".writer-1":
            return create(folder, name, content)
        both.wait()
        folder.on_disk(name).write_text(content, encoding="utf-8")
        both.wait()
        return False  # on a store the answer is not believed

    monkeypatch.setattr(Folder, "create", ignoring)
    monkeypatch.setattr(writer, "time", SimpleNamespace(sleep=lambda _: time.sleep(0.01)))

    def write(_: int) -> int:
        with site.writer() as found:
            return found.number

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(write, range(2))) == [1, 2]


def test_file_is_renewed_during_a_long_step(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_RENEWED_S", 0.01)
    with site.writer():
        site.clock.now_s += 10_000
        wait_until(lambda: site.said(".writer-1")["renewed_s"], equals=site.clock.now_s)


CHANGES: dict[str, Any] = {
    "moves": {f"{ASIDE}/t/hour=1": "t/hour=1/new", f"{ASIDE}/t/hour=2": "t/hour=2/new"},
    "writes": {"gold/made": "new"},
    "removes": ["t/hour=1/old", "t/hour=2/old"],
}


class KilledError(Exception):
    pass


def killed_at(method: str, begin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    do: Callable[..., Any] = getattr(Folder, method)

    def until(folder: Folder, name: str, *more: Any) -> Any:
        if name.startswith(begin):
            raise KilledError
        return do(folder, name, *more)

    monkeypatch.setattr(Folder, method, until)


@pytest.mark.parametrize(
    ("method", "name", "is_published"),
    [
        ("write", ".journal.json", False),
        ("move", f"{ASIDE}/t/hour=1", True),
        ("move", f"{ASIDE}/t/hour=2", True),
        ("write", "gold/made", True),
        ("remove", "t/hour=1", True),
        ("remove", "t/hour=2", True),
        ("remove", ".journal.json", True),
    ],
)
def test_changes_are_made_wholly_or_not_at_all(
    site: Site, tmp_path: Path, method: str, name: str, is_published: bool
) -> None:
    for hour in (1, 2):
        site.folder.write(f"t/hour={hour}/old/rows", "old")
    with site.writer() as first:
        for hour in (1, 2):
            first.folder.write(f"{ASIDE}/t/hour={hour}/rows", "new")
        with pytest.MonkeyPatch.context() as patched:
            killed_at(method, name, patched)
            with pytest.raises(KilledError):
                first.publish(**CHANGES)
    with site.writer():
        found = {place.relative_to(site.root).as_posix() for place in Path(site.root).rglob("rows")}
        word = "new" if is_published else "old"
        assert found == {f"t/hour={hour}/{word}/rows" for hour in (1, 2)}
        assert site.folder.exists("gold/made") == is_published
        assert not site.folder.exists(".journal.json")
        assert not site.folder.exists(ASIDE)


@pytest.mark.parametrize("content", ["", '{"moves": {', "\x00" * 40])
def test_journal_that_was_cut_off_lists_nothing(site: Site, content: str) -> None:
    site.folder.write(".journal.json", content)
    with site.writer() as found:
        found.publish(writes={"a": "1"})
    assert site.folder.read("a") == "1"
