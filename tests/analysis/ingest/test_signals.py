"""What a signal to all processes leaves of a query: stand-ins end as queries do; real ones are in test_stopped.py."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from traceback import format_exception_only
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from analysis.errors import RunError
from analysis.ingest import job
from analysis.ingest.ended import shortly
from analysis.ingest.outage import Signals


class Query:
    """Ends as queries do whose Java a signal ended, too; ``came`` is called before."""

    def __init__(self, error: Exception, came: Callable[[], None]) -> None:
        self._error = error
        self._came = came

    def awaitTermination(self, _: int) -> bool:  # noqa: N802  Spark's name
        self._came()
        raise self._error


def run_query(error: Exception, signals: Signals, came: Callable[[], None], checkpoint: str) -> None:
    writer: Any = SimpleNamespace(foreachBatch=lambda _: writer, option=lambda *_: writer, trigger=lambda **_: writer)
    writer.start = lambda: Query(error, came)
    spark = SimpleNamespace(
        conf=SimpleNamespace(set=lambda *_: None), sparkContext=SimpleNamespace(_gateway=SimpleNamespace(proc=None))
    )
    ingestion: Any = SimpleNamespace(spark=spark, publish=None)
    job.run(cast("DataFrame", SimpleNamespace(writeStream=writer)), ingestion, checkpoint, 60, None, signals)


ENDS = [StreamingQueryException("Job aborted"), Py4JNetworkError("Answer is empty"), ConnectionRefusedError()]


@pytest.mark.parametrize("error", ENDS)
def test_what_ends_with_a_signal_has_been_asked_for(tmp_path: Path, error: Exception) -> None:
    signals = Signals()
    run_query(error, signals, lambda: os.kill(os.getpid(), signal.SIGTERM), str(tmp_path))
    assert signals.came
    signals.raise_interrupt()  # which it was not


@pytest.mark.parametrize("error", ENDS)
def test_what_ends_without_a_signal_is_told(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(RunError):
        run_query(error, Signals(), lambda: None, str(tmp_path))


def test_ctrl_c_is_told_from_sigterm() -> None:
    signals = Signals()
    with signals.heard():
        os.kill(os.getpid(), signal.SIGINT)
    assert signals.came
    with pytest.raises(KeyboardInterrupt):
        signals.raise_interrupt()


def test_a_batch_that_is_given_up_fails_in_a_few_words() -> None:
    """Spark cannot search a long story, and tells a thousand lines of that; where none was asked for, it is whole."""
    signals = Signals()

    def publish(_: DataFrame, number: int) -> None:
        raise ValueError("x" * number)

    batch = cast("DataFrame", None)
    with pytest.raises(ValueError, match=r"^x{10000}$"):
        shortly(publish, signals)(batch, 10_000)
    signals.came = True
    with pytest.raises(RunError, match=r"^stopped$") as raised:
        shortly(publish, signals)(batch, 10_000)
    assert "x" not in "".join(format_exception_only(raised.value))
    assert raised.value.__suppress_context__
