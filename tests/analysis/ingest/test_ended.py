"""What is said when Java has ended: by a checkpoint as Spark leaves it. Java itself would take a record of 500 MB."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from analysis.ingest.ended import java_ended


def session(status: int | None) -> SparkSession:
    """One whose Java has ended so; None: it was not started by this process."""
    process = None if status is None else SimpleNamespace(wait=lambda _: status)
    gateway = SimpleNamespace(proc=process)
    return cast("SparkSession", SimpleNamespace(sparkContext=SimpleNamespace(_gateway=gateway)))


def checkpoint(folder: Path, *offsets: dict[str, Any], commits: int) -> str:
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    for number, found in enumerate(offsets):
        (folder / "offsets" / str(number)).write_text(
            f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps(found)}', encoding="utf-8"
        )
        (folder / "offsets" / f".{number}.crc").touch()
    for number in range(commits):
        (folder / "commits" / str(number)).write_text("v1\n{}", encoding="utf-8")
    return str(folder)


def test_the_batch_that_was_too_large_is_named(tmp_path: Path) -> None:
    """By the connector's offsets, which name the topic, and by those of our own source."""
    first, second = {"0": 5, "1": 7}, {"0": 9, "1": 7, "2": 3}
    said = "Java ran out of memory in batch 1 (partition 0, offsets 5 to 8; partition 2, offsets 0 to 2): a record may"
    for name, wrapped in (("jvm", True), ("python", False)):
        logs = [{"usage": each} if wrapped else each for each in (first, second)]
        error = java_ended(session(52), checkpoint(tmp_path / name, *logs, commits=1))
        assert str(error).startswith(said)
        assert "--source python" in str(error)
        assert error.exit_status == 1


@pytest.mark.parametrize("status", [None, 1, -9])
def test_java_that_ended_for_another_reason(tmp_path: Path, status: int | None) -> None:
    place = checkpoint(tmp_path, {"usage": {"0": 5}}, commits=0)
    assert str(java_ended(session(status), place)).startswith(
        "Java has ended in batch 0 (partition 0, offsets 0 to 4): its"
    )


@pytest.mark.parametrize("kind", ["nothing", "done", "files", "damaged", "elsewhere"])
def test_where_no_offsets_are_known_none_are_told(tmp_path: Path, kind: str) -> None:
    place = str(tmp_path / "nowhere")
    if kind == "done":
        place = checkpoint(tmp_path, {"usage": {"0": 5}}, commits=1)
    elif kind == "files":
        place = checkpoint(tmp_path, {"logOffset": 0}, commits=0)
    elif kind == "damaged":
        place = checkpoint(tmp_path, {"usage": {"0": "x"}}, commits=0)
    elif kind == "elsewhere":
        place = "hdfs://nn/checkpoint"
    assert "offsets" not in str(java_ended(session(52), place))
