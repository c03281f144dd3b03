"""Commands that are stopped, as a terminal and as systemd stop them: Java gets the signal, too, and a line is all."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.analysis.records import document, row, write_jsonl
from tests.harness.polling import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 240
HELD = row("alice", "app", produce_bytes=7, produce_limit=100.0, produce_rule="user=alice")


class Command:
    """One under way, with processes of its own group."""

    def __init__(self, process: "subprocess.Popen[bytes]", folder: Path) -> None:
        self._process = process
        self._folder = folder

    def said(self) -> list[str]:
        return (self._folder / "stderr").read_text(encoding="utf-8").splitlines()

    def found(self) -> list[str]:
        return (self._folder / "stdout").read_text(encoding="utf-8").splitlines()

    def until_it_says(self, begin: str) -> None:
        self.until(lambda: any(line.startswith(begin) for line in self.said()))

    def until(self, there: Callable[[], bool]) -> None:
        wait_until(self.said, "progress", PATIENCE_S, is_so=lambda _: there() or self._process.poll() is not None)
        assert there(), self.said()

    def stop(self, number: signal.Signals) -> int:
        """Send a signal to all its processes; returns its exit status."""
        os.killpg(self._process.pid, number)
        return self._process.wait(PATIENCE_S)


@contextmanager
def command(folder: Path, *words: str) -> Iterator[Command]:
    settings = ["--master", "local[2]", "--conf", "spark.driver.memory=1g"]
    with (folder / "stdout").open("wb") as stdout, (folder / "stderr").open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "analysis", *words, *settings],
            cwd=ROOT,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
    try:
        yield Command(process, folder)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE_S)


def after(said: Sequence[str], begin: str) -> list[str]:
    """What was said after a line, and lines like it."""
    first = next(at for at, line in enumerate(said) if line.startswith(begin))
    return [line for line in said[first:] if not line.startswith(begin)]


@pytest.mark.parametrize(
    ("number", "status", "last"),
    [
        (signal.SIGTERM, 0, []),
        pytest.param(signal.SIGINT, 130, ["stopped"], marks=pytest.mark.matrix),
    ],
)
def test_ingest_stopped_by_signal_exits_after_its_batch(
    tmp_path: Path, warehouse: str, number: signal.Signals, status: int, last: list[str]
) -> None:
    (tmp_path / "files").mkdir()
    write_jsonl(tmp_path / "files" / "one.jsonl", [document(second, [HELD]) for second in range(20)])
    words = ["--warehouse", warehouse, "--files", str(tmp_path / "files"), "--every", "1m"]
    with command(tmp_path, "ingest", *words) as running:
        running.until_it_says("batch 0: ")
        assert running.stop(number) == status, running.said()
        assert after(running.said(), "batch 0: ") == last
        assert running.found() == [f"{warehouse}: 20 documents, 20 rows"]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_gold_stopped_by_signal_says_one_word(
    tmp_path: Path, warehouse: str, number: signal.Signals, status: int
) -> None:
    (tmp_path / "files").mkdir()
    write_jsonl(tmp_path / "files" / "one.jsonl", [document(second, [HELD] * 500) for second in range(100)])
    with command(tmp_path, "ingest", "--warehouse", warehouse, "--files", str(tmp_path / "files"), "--once") as running:
        running.until(lambda: any(Path(warehouse).glob("gold/client_hour/date=*")))
        assert running.stop(number) == status, running.said()
        assert after(running.said(), "batch 0: ") == ["stopped"]


@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=pytest.mark.matrix), signal.SIGINT])
def test_ingest_stopped_within_a_batch_prints_no_traceback(
    tmp_path: Path, warehouse: str, number: signal.Signals
) -> None:
    """Spark cannot search what a query that it stops has failed of: that were a thousand lines."""
    (tmp_path / "files").mkdir()
    rows = [row(f"user-{user}", "app", bytes_in=7) for user in range(500)]
    for each in range(4):
        documents = [document(1000 * each + second, rows) for second in range(100)]
        write_jsonl(tmp_path / "files" / f"{each}.jsonl", documents)
    words = ["--warehouse", warehouse, "--files", str(tmp_path / "files"), "--every", "1m"]
    with command(tmp_path, "ingest", *words) as running:
        running.until((Path(warehouse) / "checkpoints" / "files" / "offsets" / "0").exists)
        status = running.stop(number)
        assert status == (0 if number == signal.SIGTERM else 130), running.said()
        assert [line for line in running.said() if "xception" in line or "at " in line] == []
        assert len(running.found()) == 1
