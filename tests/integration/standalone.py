"""Spark's standalone cluster on loopback: a master and workers, processes of their own, as its scripts start them."""

import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyspark

from tests.harness.ports import LOOPBACK, free_port
from tests.harness.process import Program

SPARK_HOME: Final = Path(pyspark.__file__).parent
_STARTED_S: Final = 300.0
_SMALL: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def python_without_us(folder: Path) -> Path:
    """A Python with the libraries that are installed here, and without this package: what workers have."""
    python = folder / "python"
    libraries = sysconfig.get_path("purelib")
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{libraries}" exec {sys.executable} -S "$@"\n', encoding="utf-8"
    )
    python.chmod(0o755)
    return python


class Standalone:
    """A master, and ``workers`` of one core and 1 GiB each; ``url`` is what ``--master`` takes."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._folder = folder
        self._workers = workers
        self._running = ExitStack()
        self.url = f"spark://{LOOPBACK}:{free_port()}"

    def __enter__(self) -> Self:
        try:
            port = self.url.rpartition(":")[2]
            master = self._start("master", "master.Master", "--host", LOOPBACK, "--port", port)
            master.wait_until(partial(_says, master, "New state: ALIVE"), "life", _STARTED_S)
            for number in range(self._workers):
                place = str(self._folder / f"work-{number}")
                size = ("--cores", "1", "--memory", "1g", "--work-dir", place)
                worker = self._start(f"worker-{number}", "worker.Worker", "--host", LOOPBACK, *size, self.url)
                worker.wait_until(partial(_says, worker, "Successfully registered with master"), "master", _STARTED_S)
        except BaseException:
            self._running.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.close()

    def submit(
        self,
        name: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        meanwhile: Callable[[Program], int],
    ) -> tuple[int, str, int]:
        """Exit status and output of spark-submit, and what ``meanwhile`` returns, which is called while it runs."""
        with Program(
            name,
            [str(SPARK_HOME / "bin" / "spark-submit"), *arguments],
            self._folder / f"{name}.log",
            environment={"SPARK_HOME": str(SPARK_HOME), **environment},
        ) as program:
            found = meanwhile(program)
            status = program.wait(600.0)
        return status, program.output(), found

    def _start(self, name: str, main: str, *arguments: str) -> Program:
        command = [
            str(SPARK_HOME / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{main}",
            "--webui-port",
            str(free_port()),
        ]
        environment = {
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _SMALL,
        }
        program = Program(name, [*command, *arguments], self._folder / f"{name}.log", environment=environment)
        return self._running.enter_context(program)


def _says(program: Program, text: str) -> bool:
    return text in program.output()
