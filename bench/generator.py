"""The load generator process: the broker behind every proxy, and the clients of each run in turn."""

import json
import select
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from bench.build import GENERATOR
from bench.errors import BenchError
from bench.real.recording import Recorded
from bench.rows import Load

GRACE_S: Final = 30.0


class Generator:
    """native/generator.c on a core of its own; its broker listens on ``port`` as long as it runs."""

    def __init__(self, port: int, core: int, log: Path) -> None:
        self.port = port
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                ["taskset", "-c", str(core), str(GENERATOR), str(port)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def run(
        self,
        load: Load,
        port: int,
        *,
        warmup_s: float,
        seconds: float,
        watch: list[int],
        recorded: Recorded | None = None,
    ) -> dict[str, Any]:
        """Send the load to ``port`` and return the report (see native/load.c).

        ``recorded``: replay these requests instead of the generator's own.
        """
        times = f"warmup={warmup_s} seconds={seconds}"
        pids = f"watch={','.join(map(str, watch))}" if watch else ""
        frames = recorded.words() if recorded else ""
        return self._ask(f"port={port} {load.words()} {frames} {times} {pids}", warmup_s + seconds + GRACE_S)

    def hold(self, load: Load, port: int) -> None:
        """Open the load's connections and use each once; they stay open until the next call of any method."""
        self._ask(f"port={port} {load.words()} hold=1", GRACE_S)

    def release(self) -> None:
        self._ask("", GRACE_S)

    def _ask(self, line: str, timeout_s: float) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None  # noqa: S101, PT018  both are pipes
        try:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise BenchError(f"the load generator has ended\n{self._said()}") from None
        if not select.select([self._process.stdout], [], [], timeout_s)[0]:
            raise BenchError(f"the load generator did not answer within {timeout_s:g} s\n{self._said()}")
        answer = self._process.stdout.readline()
        if not answer:
            raise BenchError(f"the load generator has ended\n{self._said()}")
        said: dict[str, Any] = json.loads(answer)
        if "error" in said:
            raise BenchError(said["error"])
        if what := ", ".join(f"{count} x {name}" for name, count in said.get("errors", {}).items() if count):
            raise BenchError(f"the load saw errors, so there are no figures: {what}\n{self._said()}")
        return said

    def _said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
