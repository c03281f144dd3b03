"""Runs a query of Structured Streaming: signals and errors."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event
from types import FrameType
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame

from analysis.errors import RunError, cause, next_run
from analysis.ingest.job import Ingestion

_POLL_S: Final = 1
_STOP: Final = "5s"
"""The time that Spark gets to end a query. The next run repeats a batch that was interrupted."""


def run(ingestion: Ingestion, checkpoint: str, every_s: int | None) -> bool:
    """Publish batches until SIGTERM or SIGINT; without ``every_s``, only those available now. Raises RunError.

    Returns whether a signal came. The next run repeats a batch that was interrupted.
    """
    stop = Event()

    def publish_or_end(batch: DataFrame, number: int) -> None:
        # With a short message: Spark matches the error of a stopped query with a recursive regex (StreamExecution's
        # PROXY_ERROR), whose stack overflows for a long one.
        try:
            ingestion.publish(batch, number)
        except Exception:
            if not stop.is_set():
                raise
            raise RunError("stopped") from None

    stream = ingestion.source.stream
    stream.sparkSession.conf.set("spark.sql.streaming.stopTimeout", _STOP)
    trigger = {"availableNow": True} if every_s is None else {"processingTime": f"{every_s} seconds"}
    writer = stream.writeStream.foreachBatch(publish_or_end).option("checkpointLocation", checkpoint).trigger(**trigger)
    with _noted(stop):
        try:
            query = writer.start()
            while not query.awaitTermination(_POLL_S):
                if stop.is_set():
                    with suppress(PySparkException, Py4JError):  # it does not end within _STOP: this process does
                        stream.sparkSession.sparkContext.setLogLevel("OFF")
                        query.stop()
                    break
        except StreamingQueryException as error:
            if not stop.is_set():
                raise RunError(f"ingestion stopped: {cause(error)}; {next_run(error)}") from error
        except (Py4JError, ConnectionError):
            if not stop.is_set():
                raise RunError(
                    "Java has ended: its reason is above, and the next run continues where this one stopped; if it ran "
                    "out of memory, give it more (--conf spark.driver.memory=4g) or take fewer documents "
                    "(--max-documents)"
                ) from None
    return stop.is_set()


@contextmanager
def _noted(stop: Event) -> Iterator[None]:
    """Note SIGTERM and SIGINT; raise KeyboardInterrupt for SIGINT at the end."""
    interrupted = Event()

    def note(number: int, _: FrameType | None) -> None:
        stop.set()
        if number == signal.SIGINT:
            interrupted.set()

    before = {each: signal.signal(each, note) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    if interrupted.is_set():
        raise KeyboardInterrupt
