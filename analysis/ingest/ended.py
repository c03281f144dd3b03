"""Java that ended under way: what is said of it, when nothing can be asked of it any more."""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from analysis.errors import RunError
from analysis.ingest.alone import on_disk
from analysis.ingest.outage import Signals

_OUT_OF_MEMORY: Final = 52
"""Spark's SparkExitCode.OOM."""
_PATIENCE_S: Final = 10.0


@contextmanager
def unless_stopped(signals: Signals) -> Iterator[None]:
    """Take the end of Java for the one that was asked for: it may have had the signal, too, and be the first to end."""
    try:
        yield
    except (StreamingQueryException, Py4JError, ConnectionError):
        if not signals.came:
            raise


def shortly(publish: Callable[[DataFrame, int], None], signals: Signals) -> Callable[[DataFrame, int], None]:
    """Return ``publish`` that fails in a few words once a signal has come: the batch is given up.

    Spark's StreamExecution searches what a query that it stops has failed of for a Py4JJavaError with a regex that
    recurs for each character (PROXY_ERROR): of a long one its stack overflows, and Java tells of a thousand frames.
    """

    def publish_or_end(batch: DataFrame, number: int) -> None:
        try:
            publish(batch, number)
        except Exception:
            if not signals.came:
                raise
            raise RunError("stopped") from None

    return publish_or_end


def java_ended(spark: SparkSession, checkpoint: str) -> RunError:
    """Return what to raise where Java does not answer."""
    batch = _under_way(on_disk(checkpoint))
    if _status(spark) != _OUT_OF_MEMORY:
        return RunError(f"Java has ended{batch}: its reason is above; a next run goes on where this one was")
    return RunError(
        f"Java ran out of memory{batch}: a record may unfold to more than it can hold. --source python rejects such "
        "a record and goes on (it reads the topic from its begin, and stores nothing twice); or give Java more memory: "
        "--conf spark.driver.memory=8g"
    )


def _status(spark: SparkSession) -> int | None:
    """Return the exit status of Java; None: it is not known, or it runs."""
    context: Any = spark.sparkContext
    process: subprocess.Popen[bytes] | None = getattr(context._gateway, "proc", None)  # noqa: SLF001  nobody else knows
    try:
        return process.wait(_PATIENCE_S) if process is not None else None
    except subprocess.TimeoutExpired:
        return None


def _under_way(checkpoint: Path | None) -> str:
    """Say which batch a checkpoint has begun and not ended, and of a topic which offsets it has."""
    if checkpoint is None:
        return ""
    try:
        begun, ended = (_numbers(checkpoint / name) for name in ("offsets", "commits"))
        number = max(begun)
        if number in ended:
            return ""
        before = _offsets(checkpoint / "offsets" / str(number - 1)) if number - 1 in begun else {}
        spans = [
            f"partition {partition}, offsets {before.get(partition, 0)} to {end - 1}"
            for partition, end in _offsets(checkpoint / "offsets" / str(number)).items()
            if end > before.get(partition, 0)
        ]
    except (OSError, ValueError, TypeError, AttributeError):
        return ""
    return f" in batch {number} ({'; '.join(spans)})" if spans else f" in batch {number}"


def _numbers(folder: Path) -> set[int]:
    return {int(file.name) for file in folder.iterdir() if file.name.isdigit()}


def _offsets(file: Path) -> dict[str, int]:
    """Return {partition: end} of the log of a batch: the connector's names the topic, ours does not."""
    found = json.loads(file.read_text(encoding="utf-8").splitlines()[-1])
    inner = next(iter(found.values()), 0)
    offsets = inner if isinstance(inner, dict) else found
    return {str(partition): int(end) for partition, end in offsets.items() if str(partition).isdigit()}
