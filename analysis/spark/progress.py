"""How far long work is, in lines on stderr: which step of how many, and what Spark is doing about it.

with Progress(spark, "report", steps=3) as progress:
    progress.step("episodes")   # report: 1 of 3, episodes
    ...                         # report: 1 of 3, episodes: 34 of 200 tasks, 410 MB read, 41 s
"""

import time
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import click

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EVERY_S: Final = 5.0


def to_stderr(line: str) -> None:
    """Say a line beside what a command found, which goes to stdout."""
    click.echo(line, err=True)


class Progress:
    """Tells of steps as they begin, and every few seconds how far the one under way is."""

    def __init__(
        self, spark: "SparkSession", what: str, *, steps: int, tell: Callable[[str], None] = to_stderr
    ) -> None:
        self._context: Any = spark.sparkContext
        self._what = what
        self._steps = steps
        self._tell = tell
        self._number = 0
        self._name = ""
        self._began_s = 0.0
        self._ended = Event()
        self._thread = Thread(target=self._watch, name="progress", daemon=True)

    def step(self, name: str) -> None:
        """Begin the next step."""
        self._number += 1
        self._name = name
        self._began_s = time.monotonic()  # noqa: TID251  of a program that waits, not of the proxy
        self._tell(self._head())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        from py4j.protocol import Py4JError

        with suppress(Py4JError, OSError):  # Java has ended, and whoever asks it for more than this says so
            while not self._ended.wait(_EVERY_S):
                if self._number and (doing := self._doing()):
                    self._tell(f"{self._head()}: {doing}")

    def _head(self) -> str:
        return f"{self._what}: {self._number} of {self._steps}, {self._name}"

    def _doing(self) -> str:
        """Return what Spark's stages under way have done; nothing where it has none."""
        store = self._context._jsc.sc().statusStore()  # noqa: SLF001  bytes are in no public face but the HTTP one
        stages = store.activeStages()
        running = [stages.apply(index) for index in range(stages.size())]
        if not running:
            return ""
        done = sum(stage.numCompleteTasks() for stage in running)
        tasks = sum(stage.numTasks() for stage in running)
        read = sum(stage.inputBytes() + stage.shuffleReadBytes() for stage in running)
        passed_s = time.monotonic() - self._began_s  # noqa: TID251  as above
        # What workers open by themselves is not counted.
        said = f", {read / 1e6:,.0f} MB read" if read >= 1e6 else ""
        return f"{done} of {tasks} tasks{said}, {passed_s:.0f} s"
