"""What a command costs with all processes that it starts: Spark is a Python process, a JVM, and Python workers.

The reaper of orphans is a process of ours (prctl(2), PR_SET_CHILD_SUBREAPER), so that none is lost that outlives its
parent. What the kernel adds up as processes end is not all: pyspark.daemon ignores SIGCHLD, and of children of such a
process it forgets the CPU time (wait(2)). So CPU time is sampled, of each process by itself, as memory is.
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
    """Of one command. ``jvm_cpu_s`` is part of ``cpu_s``; both as seen last before each process ended."""

    cpu_s: float
    jvm_cpu_s: float
    wall_s: float
    peak_bytes: int
    """Of all its processes together at one time, shared pages counted once (PSS)."""
    peak_jvm_bytes: int


def run(command: Sequence[str], log: Path) -> Cost:
    """Run a command to its end, with its output in ``log``. Raises BenchError, with the end of the log, if it fails."""
    # In a process of its own: whatever else we have started is not to be counted, and not to be ended.
    with subprocess.Popen(
        [sys.executable, "-m", __spec__.name, str(log), *command], stdout=subprocess.PIPE, text=True
    ) as meter:
        try:
            said, _ = meter.communicate()
        except BaseException:
            meter.terminate()
            raise
    if meter.returncode != 0:
        raise BenchError(f"{' '.join(command)}: what it costs could not be measured")
    answer = json.loads(said)
    if code := answer.pop("code"):
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:]
        raise BenchError("\n".join([f"{' '.join(command)} failed with {code}:", *lines]))
    return Cost(**answer)


def _measure(log: Path, command: Sequence[str]) -> dict[str, float]:
    """Run the command as ours alone. Returns its exit code as ``code``, and a Cost."""
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
    """Looks at our descendants from time to time."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self.peak_jvm_bytes = 0
        self._cpu_s: dict[int, float] = {}
        self._jvms: set[int] = set()

    def sample(self) -> None:
        total = jvm = 0
        for process in _descendants():
            with suppress(psutil.Error):  # it has ended meanwhile
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
    """Return all that was started from here and is still there; those of a dead parent are ours."""
    return psutil.Process().children(recursive=True)


def _end_all(watch: _Watch, grace_s: float) -> None:
    """Wait for what the command has left behind, end what stays, and reap all of it."""
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
    """Collect children that have ended; whether there are others."""
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
