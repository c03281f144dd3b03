"""One sample of a row: sends the load through a target and measures its cost."""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import psutil

from bench.errors import BenchError
from bench.programs import SLUICE, Variant, require_compiled
from bench.real.stage import Stage
from bench.rows import Client, Load, Measure, Row
from bench.targets import Fleet, Target

Sample = dict[str, float]
"""Figure → value, as in `FIGURES`; with a load also requests_per_s (or mb_per_s), proxy_busy (of a core) and load_busy
(of a core; for the generator with its own broker, the share of time it was not idle).
"""

FIGURES: Final = {
    Measure.CPU_PER_REQUEST: ("cpu_us_per_request",),
    Measure.CPU_PER_GB: ("cpu_s_per_gb",),
    Measure.CPU_PER_CONNECTION: ("cpu_us_per_connection", "connections_per_cpu_s"),
    Measure.LATENCY: ("p50_us", "p99_us"),
    Measure.MEMORY: ("kib_per_connection", "rss_mib"),
    Measure.START: ("listening_ms",),
    Measure.VERSION: ("wall_ms",),
}
SETTLE_S: Final = 0.3
WARM_CONNECTIONS: Final = 20

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Duration:
    """The duration of each sample: `warmup_s` that are not measured, then `seconds` that are."""

    warmup_s: float
    seconds: float


def measure(row: Row, target: Target, fleet: Fleet, duration: Duration) -> Sample:
    """Return a sample of a row that loads a running target. Raises BenchError if any request failed."""
    if row.measure is Measure.MEMORY:
        return _memory(row, target, fleet)
    if row.load.client is Client.JAVA:
        return _tool(row.load, target, fleet, duration)
    said = run_load(row.load, target, fleet, duration)
    target.require_running()
    seconds, requests = said["seconds"], said["requests"]
    cpu_s = sum(said["watched_cpu_s"])
    sample = {
        "requests_per_s": requests / seconds,
        "proxy_busy": cpu_s / seconds,
        "load_busy": 1 - said["idle_s"] / seconds,
        "p50_us": said["latency_us"]["p50"],
        "p99_us": said["latency_us"]["p99"],
    }
    gigabytes = requests * (said["request_bytes"] + said["answer_bytes"]) / 1e9
    sample["cpu_us_per_request"] = cpu_s / requests * 1e6
    sample["cpu_s_per_gb"] = cpu_s / gigabytes
    if row.measure is Measure.CPU_PER_CONNECTION and cpu_s:
        sample["cpu_us_per_connection"] = sample["cpu_us_per_request"]
        sample["connections_per_cpu_s"] = requests / cpu_s
    return sample


def measure_start(row: Row, name: str, fleet: Fleet) -> Sample:
    target = fleet.start(name, Variant(row.entities))
    fleet.stop(target)
    return {"listening_ms": target.listening_ms}


def measure_version(name: str, fleet: Fleet) -> Sample:
    """Measure the installed command, as a user types it."""
    command = [require_compiled("sluice") if name == SLUICE else str(Path(sys.executable).with_name("sluice"))]
    start_s = time.perf_counter()
    done = subprocess.run(
        ["taskset", "-c", str(fleet.cores.proxy), *command, "--version"], capture_output=True, text=True, check=False
    )
    wall_ms = (time.perf_counter() - start_s) * 1000
    if done.returncode != 0:
        raise BenchError(f"sluice --version failed:\n{done.stderr}")
    return {"wall_ms": wall_ms}


def run_load(load: Load, target: Target, fleet: Fleet, duration: Duration) -> dict[str, Any]:
    """Return the generator's report. Raises BenchError, with the end of the target's log, if any request failed."""
    recorded = fleet.stage.recorded() if load.client is Client.REPLAY else None
    core = CoreTime(fleet.cores.load)
    said = _blaming(
        target,
        lambda: fleet.generator.run(
            load,
            target.port,
            warmup_s=duration.warmup_s,
            seconds=duration.seconds,
            watch=target.pids,
            recorded=recorded,
        ),
        fleet.stage if load.is_real else None,
    )
    if recorded:
        said["idle_s"] = (1 - core.busy()) * said["seconds"]  # includes the broker
    if not said["requests"]:
        raise BenchError(f"{target.name}: not one request was answered")
    return said


class CoreTime:
    """Measures how busy a core is from now on, whatever runs there."""

    def __init__(self, core: int) -> None:
        self._core = core
        self._idle_s, self._began_s = self._idle(), time.perf_counter()

    def busy(self) -> float:
        return 1 - (self._idle() - self._idle_s) / (time.perf_counter() - self._began_s)

    def _idle(self) -> float:
        times = psutil.cpu_times(percpu=True)[self._core]
        return float(times.idle + times.iowait)


def process_cpu_s(pid: int) -> float:
    """Return user and system time of all threads, including ended ones: clock_getcpuclockid(3), which Python lacks."""
    return time.clock_gettime(~pid << 3 | 2)


def _tool(load: Load, target: Target, fleet: Fleet, duration: Duration) -> Sample:
    """Measure a tool of the distribution. It has no separate warm-up: the small cost of its start is included."""
    fleet.stage.prepare(load, duration.seconds)
    pids, core = target.pids, CoreTime(fleet.cores.load)
    before_s = sum(map(process_cpu_s, pids))
    moved = _blaming(target, lambda: fleet.stage.run(load, target.port, duration.seconds), fleet.stage)
    cpu_s = sum(map(process_cpu_s, pids)) - before_s
    target.require_running()
    return {
        "mb_per_s": moved.bytes / moved.seconds / 1e6,
        "proxy_busy": cpu_s / moved.seconds,
        "load_busy": core.busy(),
        "cpu_s_per_gb": cpu_s / moved.bytes * 1e9,
    }


def _memory(row: Row, target: Target, fleet: Fleet) -> Sample:
    """Measure memory per idle connection in a fresh process that has served a few connections before."""
    _hold(replace(row.load, connections=WARM_CONNECTIONS), target, fleet)
    before = target.rss_bytes()
    after = _hold(row.load, target, fleet)
    return {"kib_per_connection": (after - before) / row.load.connections / 1024, "rss_mib": before / 2**20}


def _hold(load: Load, target: Target, fleet: Fleet) -> int:
    """Return the target's memory while the connections are open, each used once."""
    _blaming(target, lambda: fleet.generator.hold(load, target.port))
    time.sleep(SETTLE_S)
    memory = target.rss_bytes()
    fleet.generator.release()
    time.sleep(SETTLE_S)
    return memory


def _blaming(target: Target, work: Callable[[], T], stage: Stage | None = None) -> T:
    """Run ``work`` and add the target's log to errors; ``stage`` is checked first, as it may have failed instead."""
    try:
        return work()
    except BenchError as error:
        if stage:
            stage.require_running()
        raise BenchError(f"through {target.name}: {error}\n{target.log_tail()}") from None
