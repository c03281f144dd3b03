"""One sample of one row: the load sent through one target, and what it cost there."""

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.build import LOAD
from bench.errors import BenchError
from bench.rows import Load, Measure, Row
from bench.targets import DIRECT, Fleet, Target

Sample = dict[str, float]
"""Figure → value, as in `FIGURES` and, for what has a load, requests_per_s, proxy_busy and load_busy (of a core)."""

FIGURES: Final = {
    Measure.CPU_PER_REQUEST: ("cpu_us_per_request",),
    Measure.CPU_PER_GB: ("cpu_s_per_gb",),
    Measure.LATENCY: ("p50_us", "p99_us"),
    Measure.MEMORY: ("kib_per_connection", "rss_mib"),
    Measure.START: ("listening_ms",),
    Measure.VERSION: ("wall_ms",),
}
SETTLE_S: Final = 0.3
WARM_CONNECTIONS: Final = 20
GRACE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Duration:
    """How long each sample is loaded: `warmup_s` that do not count, then `seconds` that do."""

    warmup_s: float
    seconds: float


def measure(row: Row, target: Target, fleet: Fleet, duration: Duration) -> Sample:
    """One sample of a row that loads a running target. BenchError when any request went wrong."""
    if row.measure is Measure.MEMORY:
        return _memory(row, target, fleet)
    said = run_load(row.load, target, fleet, duration)
    target.require_running()
    seconds, requests = said["seconds"], said["requests"]
    *proxy_cpu_s, broker_cpu_s = said["watched_cpu_s"]
    sample = {
        "requests_per_s": requests / seconds,
        "proxy_busy": sum(proxy_cpu_s) / seconds,
        "load_busy": (said["generator_cpu_s"] + broker_cpu_s) / seconds,
        "p50_us": said["latency_us"]["p50"],
        "p99_us": said["latency_us"]["p99"],
    }
    gigabytes = requests * (said["request_bytes"] + said["answer_bytes"]) / 1e9
    sample["cpu_us_per_request"] = sum(proxy_cpu_s) / requests * 1e6
    sample["cpu_s_per_gb"] = sum(proxy_cpu_s) / gigabytes
    return sample


def measure_start(row: Row, name: str, fleet: Fleet) -> Sample:
    target = fleet.start(name, row.entities)
    fleet.stop(target)
    return {"listening_ms": target.listening_ms}


def measure_version(fleet: Fleet) -> Sample:
    """The installed command where there is one, as a user types it."""
    script = Path(sys.executable).with_name("sluice")
    command = [str(script)] if script.exists() else [sys.executable, "-m", "proxy"]
    start_s = time.perf_counter()
    done = subprocess.run(
        ["taskset", "-c", str(fleet.cores.proxy), *command, "--version"], capture_output=True, text=True, check=False
    )
    wall_ms = (time.perf_counter() - start_s) * 1000
    if done.returncode != 0:
        raise BenchError(f"sluice --version failed:\n{done.stderr}")
    return {"wall_ms": wall_ms}


def run_load(load: Load, target: Target, fleet: Fleet, duration: Duration) -> dict[str, Any]:
    """What the generator said; the CPU of the broker is the last of ``watched_cpu_s``."""
    watched = [*([] if target.name == DIRECT else target.pids), fleet.broker.program.pid]
    command = [
        *_load_command(load, target, fleet),
        f"warmup={duration.warmup_s}",
        f"seconds={duration.seconds}",
        f"watch={','.join(map(str, watched))}",
    ]
    limit_s = duration.warmup_s + duration.seconds + GRACE_S
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    if done.returncode != 0:
        raise BenchError(_refused(target, done.stdout, done.stderr))
    said: dict[str, Any] = json.loads(done.stdout)
    if not said["requests"]:
        raise BenchError(f"{target.name}: not one request was answered")
    return said


def _refused(target: Target, stdout: str, stderr: str) -> str:
    try:
        errors = json.loads(stdout)["errors"]
        what = ", ".join(f"{count} x {name}" for name, count in errors.items() if count)
    except (ValueError, KeyError):
        what = stderr.strip() or "no answer from the generator"
    return f"the load through {target.name} saw errors, so there are no figures: {what}\n{target.program.tail()}"


def _memory(row: Row, target: Target, fleet: Fleet) -> Sample:
    """Growth for the idle connections of a fresh process that has served a few before."""
    _hold(Load(WARM_CONNECTIONS), target, fleet)
    before = target.rss_bytes()
    after = _hold(row.load, target, fleet)
    return {"kib_per_connection": (after - before) / row.load.connections / 1024, "rss_mib": before / 2**20}


def _hold(load: Load, target: Target, fleet: Fleet) -> int:
    """The target's memory while so many connections are open, each used once."""
    with subprocess.Popen(
        [*_load_command(load, target, fleet), "hold=1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdin is not None and holder.stdout is not None and holder.stderr is not None  # noqa: S101, PT018
        if holder.stdout.readline() != "ready\n":
            raise BenchError(_refused(target, "", holder.stderr.read()))
        time.sleep(SETTLE_S)
        memory = target.rss_bytes()
        holder.stdin.close()
    time.sleep(SETTLE_S)
    return memory


def _load_command(load: Load, target: Target, fleet: Fleet) -> list[str]:
    return ["taskset", "-c", str(fleet.cores.load), str(LOAD), f"port={target.port}", *load.arguments()]
