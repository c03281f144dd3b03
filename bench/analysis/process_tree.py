"""The cost of a command with all its processes: Spark is a Python process, a JVM, and Python workers.

Orphans are reparented to a process of ours (prctl(2), PR_SET_CHILD_SUBREAPER), so that none is lost. The kernel's sums
of ended children are incomplete: pyspark.daemon ignores SIGCHLD, and the CPU time of children of such a process is lost
(wait(2)). So CPU time is sampled per process, as memory is.
"""

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import psutil

from bench.errors import BenchError

_PR_SET_CHILD_SUBREAPER: Final = 36
_SAMPLE_S: Final = 0.25
_GRACE_S: Final = 20.0
_TAIL_LINES: Final = 20
_INTERRUPTS: Final = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one command. ``jvm_cpu_s`` is part of ``cpu_s``; both are the last samples before each
    process ended.
    """

    cpu_s: float
    jvm_cpu_s: float
    wall_s: float
    peak_bytes: int
    """The peak over all processes at one time, shared pages counted once (PSS)."""
    peak_jvm_bytes: int


def run(command: Sequence[str], log: Path) -> Cost:
    """Run a command with its output in ``log``. Raises BenchError, with the end of the log, if it fails."""
    # In a process of its own, so that other children of this one are neither counted nor killed.
    with subprocess.Popen(
        [sys.executable, "-m", __spec__.name, str(log), *command], stdout=subprocess.PIPE, text=True
    ) as meter:
        try:
            said, _ = meter.communicate()
        except BaseException:
            meter.terminate()
            raise
    if meter.returncode != 0:
        raise BenchError(f"{' '.join(command)}: its cost could not be measured")
    answer = json.loads(said)
    if code := answer.pop("code"):
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:]
        raise BenchError("\n".join([f"{' '.join(command)} failed with {code}:", *lines]))
    return Cost(**answer)


def _measure(log: Path, command: Sequence[str]) -> dict[str, float]:
    """Run the command as the only child. Returns its exit code as ``code``, and a Cost."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        sys.exit("processes cannot be followed here: prctl(PR_SET_CHILD_SUBREAPER) failed; Linux is needed")
    begun_s = time.perf_counter()
    watch = _Watch()
    grace_s = 0.0
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    try:
        while process.poll() is None:
            watch.sample()
            time.sleep(_SAMPLE_S)
        wall_s = time.perf_counter() - begun_s
        grace_s = _GRACE_S
    finally:
        for each in _INTERRUPTS:
            signal.signal(each, signal.SIG_IGN)  # a second one would leave Spark behind
        _end_all(watch, grace_s)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = max(watch.cpu_s, used.ru_utime + used.ru_stime)
    cost = Cost(cpu_s, watch.jvm_cpu_s, wall_s, watch.peak_bytes, watch.peak_jvm_bytes)
    return {"code": process.returncode, **asdict(cost)}


class _Watch:
    """Samples our descendants."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self.peak_jvm_bytes = 0
        self._cpu_s: dict[int, float] = {}
        self._jvms: set[int] = set()

    def sample(self) -> None:
        total = jvm = 0
        for process in _descendants():
            with suppress(psutil.Error):  # it has exited meanwhile
                times = process.cpu_times()
                self._cpu_s[process.pid] = times.user + times.system
                used = process.memory_full_info().pss
                total += used
                if process.name() == "java":
                    jvm += used
                    self._jvms.add(process.pid)
        self.peak_bytes = max(self.peak_bytes, total)
        self.peak_jvm_bytes = max(self.peak_jvm_bytes, jvm)

    @property
    def jvm_cpu_s(self) -> float:
        return sum(self._cpu_s[pid] for pid in self._jvms)

    @property
    def cpu_s(self) -> float:
        return sum(self._cpu_s.values())


def _descendants() -> list[psutil.Process]:
    """Return all live descendants; orphans are our children."""
    return psutil.Process().children(recursive=True)


def _end_all(watch: _Watch, grace_s: float) -> None:
    """Wait for processes that the command has left behind, kill those that remain, and reap them."""
    deadline_s = time.perf_counter() + grace_s
    while _reap() and time.perf_counter() < deadline_s:
        watch.sample()
        time.sleep(_SAMPLE_S / 5)
    while _reap():
        for process in _descendants():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(_SAMPLE_S / 5)


def _reap() -> bool:
    """Reap ended children; returns whether others remain."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
        return True
    return False


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        print(json.dumps(_measure(Path(sys.argv[1]), sys.argv[2:])))
    except KeyboardInterrupt:
        sys.exit(130)
