"""Programs that write to one warehouse at the same time, killed at any moment: every document is stored once."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import duckdb
import pytest

from analysis.warehouse import Period, opened
from tests.analysis.records import document, row, write_jsonl
from tests.harness.polling import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1500)]

ROOT: Final = Path(__file__).resolve().parents[2]
SPARK: Final = ("--master", "local[1]", "--conf", "spark.driver.memory=512m")
FILES, DOCUMENTS = 12, 8
ROUNDS: Final = 6
MOST_S: Final = 3.0
"""The longest time between a place in the queue and a kill."""
TOGETHER: Final = 3


class Site:
    """A warehouse of files of two days."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.warehouse = folder, folder / "warehouse"
        (folder / "files").mkdir()
        for number in range(FILES):
            seqs = range(number * DOCUMENTS, (number + 1) * DOCUMENTS)
            documents = [
                document(seq, [row("alice", bytes_in=seq)], second=seq % 2 * 86_400 + seq * 60) for seq in seqs
            ]
            write_jsonl(folder / "files" / f"{number}.jsonl", documents)

    def commands(self) -> list[list[str]]:
        """Two ingests of the same files, which have a checkpoint each, and all others that write."""
        ingests = [
            [
                "ingest",
                "--files",
                str(self.folder / "files"),
                "--once",
                "--max-documents",
                "1",
                "--checkpoint",
                str(each),
            ]
            for each in (self.folder / "one", self.folder / "other")
        ]
        return [*ingests, ["gold"], ["compact", "--older-than", "0s"], ["expire", "--keep", "36500d"]]

    def start(self, words: Sequence[str]) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "analysis", *words, "--warehouse", str(self.warehouse), *SPARK]
        log = (self.folder / "log").open("ab")
        with log:
            return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)

    def is_in_queue(self, process: "subprocess.Popen[bytes]") -> bool:
        """Whether a process writes, or waits for that, or has ended."""
        if process.poll() is not None:
            return True
        with suppress(FileNotFoundError):  # a file goes when another process has its turn
            said = [each.read_text(encoding="utf-8") for each in self.warehouse.glob(".writer-*[0-9]")]
            return any(f'"pid": {process.pid},' in each for each in said)
        return False

    def found(self) -> list[tuple[int, int, int]]:
        """Count documents, their numbers, and the sum of these, in rows, in documents and in gold."""
        asked = "SELECT count(*), count(DISTINCT seq), sum(seq)::BIGINT FROM"
        of_rows = asked.replace("seq", "bytes_in")  # each document has one row, of so many bytes
        tables = [(of_rows, "usage"), (asked, "documents")]
        queries = [f"{each} read_parquet('{self.warehouse}/{table}/**/*.parquet')" for each, table in tables]
        found = [duckdb.execute(each).fetchall()[0] for each in queries]
        gold = opened(str(self.warehouse), Period(), ("client", "documents"))
        found += gold.execute(f"{asked} documents").fetchall()
        found += gold.execute(
            "SELECT sum(rows)::BIGINT, sum(rows)::BIGINT, sum(bytes_in)::BIGINT FROM client"
        ).fetchall()
        return found


@pytest.fixture
def running() -> Iterator["list[subprocess.Popen[bytes]]"]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for each in started:
        kill(each)


def kill(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_every_document_is_stored_once_whatever_is_killed(
    tmp_path: Path, running: "list[subprocess.Popen[bytes]]"
) -> None:
    site = Site(tmp_path)
    chance = random.Random(7)
    for number in range(ROUNDS):
        chosen = [site.commands()[number % 2], *chance.sample(site.commands()[1:], TOGETHER - 1)]
        running += [site.start(words) for words in chosen]
        for each in running[-len(chosen) :]:
            wait_until(lambda: site.is_in_queue(each), "a place in the queue", 300)  # noqa: B023  at once
            try:
                each.wait(chance.uniform(0, MOST_S))
            except subprocess.TimeoutExpired:
                kill(each)
    for words in [*site.commands(), ["gold"]]:
        last = site.start(words)
        running.append(last)
        assert last.wait(300) == 0, (words, (tmp_path / "log").read_text(encoding="utf-8"))
    total = FILES * DOCUMENTS
    assert site.found() == [(total, total, sum(range(total)))] * 4
