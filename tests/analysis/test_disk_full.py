"""A disk that is really full: a command ends with one line that says so, and the next run is whole."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from analysis.warehouse import Period, opened
from tests.analysis.gold import world
from tests.analysis.records import write_jsonl
from tests.harness.process import Program

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT: Final = Path(__file__).resolve().parents[2]
SPARK: Final = ("--master", "local[2]", "--conf", "spark.driver.memory=700m")
NOISE: Final = ("WARNING: Using incubator modules", "batch ", "gold of ")
ROOMS: Final = {"ingest": (60_000,), "gold": (0, 100_000), "report": (0, 40_000), "compact": (60_000,)}
"""How many bytes are free when a command begins; each time it needs more."""
NAMESPACE: Final = [] if os.geteuid() == 0 else ["-r"]


class Disk:
    """A small file system in a namespace of mounts: programs find it there if they are started by ``run``."""

    def __init__(self, folder: Path) -> None:
        self.place, self._folder = folder / "disk", folder
        self.place.mkdir()
        made = 'mount -t tmpfs -o size=16m none "$0" && echo mounted && exec sleep 1200'
        command = ["unshare", "-m", *NAMESPACE, "sh", "-c", made, str(self.place)]
        self._holder = Program("disk", command, folder / "disk.log")

    def __enter__(self) -> "Disk":
        try:
            self._holder.wait_until(lambda: "mounted" in self._holder.output(), "the file system", 30)
        except BaseException:
            self._holder.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._holder.stop()

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        user = ["-U", "--preserve-credentials"] if NAMESPACE else []
        enter = ["nsenter", "-t", str(self._holder.pid), "-m", *user, f"--wd={ROOT}", "--"]
        return subprocess.run([*enter, *command], capture_output=True, text=True, timeout=300, check=False)

    def leave(self, free: int) -> None:
        """Fill it but for so many bytes."""
        room = 'rm -f "$0/filler"; n=$(($(stat -f -c "%a*%S" "$0") - $1)); head -c $n /dev/zero > "$0/filler"'
        assert self.run("sh", "-c", room, str(self.place), str(free)).returncode == 0

    def empty(self) -> None:
        self.run("rm", str(self.place / "filler"))

    def copied(self) -> Path:
        """What is on it, where this process finds it."""
        shutil.rmtree(self._folder / "copy", ignore_errors=True)
        assert self.run("cp", "-r", str(self.place), str(self._folder / "copy")).returncode == 0
        return self._folder / "copy"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    can = subprocess.run(["unshare", "-m", *NAMESPACE, "mount", "-t", "tmpfs", "none", "/mnt"], check=False)
    if can.returncode:
        pytest.skip("a file system cannot be mounted here (unshare -m, unshare -m -r)")
    with Disk(tmp_path) as made:
        yield made


def analyze(disk: Disk, words: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    spark = [] if words[0] == "report" else SPARK
    warehouse = ["--warehouse", str(disk.place / "w")]
    return disk.run(sys.executable, "-m", "analysis", *words, *warehouse, *spark)


def test_full_disk_is_said_in_a_line_and_the_next_run_is_whole(disk: Disk, tmp_path: Path) -> None:
    documents = world.documents(3, [world.MIDDAY_MS, world.MIDDAY_MS + 3_500_000, world.MIDNIGHT_MS], 100)
    (tmp_path / "files").mkdir()
    for part in range(3):
        write_jsonl(tmp_path / "files" / f"{part}.jsonl", documents[part::3])
    source = ["--files", str(tmp_path / "files"), "--once", "--no-gold", "--max-documents", "1"]
    found = []
    for words in (["ingest", *source], ["gold"], ["report"], ["compact", "--older-than", "0s"]):
        for free in ROOMS[words[0]]:
            disk.leave(free)
            ran = analyze(disk, words)
            said = [line for line in ran.stderr.splitlines() if not line.startswith(NOISE)]
            assert (ran.returncode, len(said)) in ((1, 1), (2, 1)), (words, free, ran.stderr)
            assert said[0].startswith("error: ")
            assert "a disk is full: free some space" in said[0]
        disk.empty()
        ran = analyze(disk, words)
        assert ran.returncode == 0, (words, ran.stderr)
        if words[0] in ("gold", "compact"):
            found.append(_sums(disk.copied() / "w"))
    bytes_in = [number for each in documents for number in each["rows"]["bytes_in"]]
    assert found == [[(len(documents), len(bytes_in), sum(bytes_in))] * 2] * len(found)


def _sums(warehouse: Path) -> list[tuple[int, int, int]]:
    """Documents, rows and bytes: as stored, and in gold."""
    of = f"read_parquet('{warehouse}/{{}}/**/*.parquet')".format
    stored = f"FROM {of('usage')} SELECT count(*), sum(bytes_in), (FROM {of('documents')} SELECT count(*))"
    gold = "SELECT sum(rows), sum(bytes_in), (SELECT count(*) FROM documents) FROM client"
    connection = opened(str(warehouse), Period(), ("documents", "client"))
    both = [connection.execute(query).fetchall()[0] for query in (stored, gold)]
    return [(documents, int(rows), int(bytes_in)) for rows, bytes_in, documents in both]
