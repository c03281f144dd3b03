"""``python -m bench.usage``: the cost of shipping usage records with the topic available, away, and back.

A process of its own (this file again, with ``worker``) updates 10,000 meters every second on uvloop, as sessions would,
and ships them to a real broker. The first phase does not ship: the difference to it is the cost of shipping.
"""

import argparse
import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import uvloop
from aiokafka import AIOKafkaConsumer

from bench.machine import describe_machine
from bench.targets import Cores
from config.loader import load_settings
from proxy.runtime import logs
from proxy.runtime.clock import monotonic_s
from proxy.usage.metering import Metering
from proxy.usage.service import shipper_of
from quotas.engine import Engine
from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from tests.harness.kafka import KafkaCluster

RESULTS: Final = Path(__file__).parent / "results"
TOPIC: Final = "bench-usage"
CLIENTS, USERS, BROKERS = 10_000, 2_000, 3
TICK_S: Final = 0.001
MOST_CPU, MOST_LAG_MS = 0.03, 2.0
"""Aims: the share of a core, and the lag at the 99th percentile (docs/benchmarks.md)."""
Phase = dict[str, Any]
_SLUICE_YAML: Final = """\
cluster: {{name: bench, bootstrap: ["{bootstrap}"]}}
listeners: [{{name: BENCH, bind: "127.0.0.1:1", advertise: 127.0.0.1, brokers: {{"0": "2"}}}}]
quotas: {{store: {{type: file, path: quotas.yaml}}}}
admin: {{bind: "127.0.0.1:3"}}
usage: {{topic: {{name: bench-usage, replication_factor: 1}}, buffer: {buffer}, instance: bench}}
"""


def main(arguments: Sequence[str]) -> int:
    options = _parse(arguments)
    if options.worker:
        logs.configure("warning", "console")
        uvloop.run(_Worker(options.worker).run())
        return 0
    cores = Cores.plan(sorted(os.sched_getaffinity(0)))
    os.sched_setaffinity(0, {cores.load})  # also applies to the broker
    begun = datetime.now(UTC)
    with KafkaCluster() as cluster, TemporaryDirectory(prefix="sluice-bench-") as folder:
        phases = _measure(cluster, Path(folder), cores, options)
        found = asyncio.run(_documents(cluster.bootstrap))
    kept = _compare(found)
    print(_table(phases))
    print(
        f"kept {kept['documents']:,} documents, {kept['rows']:,} rows; {kept['missing']:,} documents missing, "
        f"{kept['dropped']:,} counted as dropped"
    )
    if not options.no_save:
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{begun:%Y-%m-%d-%H%M}-usage-{os.cpu_count()}-cores.json"
        document = {"machine": describe_machine(cores), "options": vars(options), "phases": phases, "kept": kept}
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0 if kept["missing"] == kept["dropped"] else 1


def _measure(cluster: KafkaCluster, folder: Path, cores: Cores, options: argparse.Namespace) -> list[Phase]:
    config = folder / "sluice.yaml"
    config.write_text(_SLUICE_YAML.format(bootstrap=cluster.bootstrap, buffer=options.buffer), encoding="utf-8")
    command = ["taskset", "-c", str(cores.proxy), sys.executable, "-m", "bench.usage", "--worker", str(config)]
    phases: list[Phase] = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        stdin, stdout = worker.stdin, worker.stdout
        assert stdin is not None  # noqa: S101  a pipe
        assert stdout is not None  # noqa: S101

        def phase(name: str, seconds: float) -> None:
            print(f"{name}: {seconds:g} s", file=sys.stderr)
            stdin.write(f"{name}\n")
            stdin.flush()
            time.sleep(seconds)
            stdin.write("\n")
            stdin.flush()
            phases.append(json.loads(stdout.readline()))

        try:
            phase("not shipping", options.seconds)
            phase("shipping", options.seconds)
            cluster.stop_broker(0, crash=True)
            phase("topic away", options.outage)
            cluster.start_broker(0)
            phase("topic back", options.seconds)
            phase("shipping again", options.seconds)
            stdin.close()
            worker.wait(30)
        finally:
            worker.kill()
    return phases


class _Worker:
    """Updates the meters all the time, and measures the phases named on its stdin."""

    def __init__(self, config: Path) -> None:
        self._settings = load_settings(config)
        default = Policy({Entity(user=Default.DEFAULT): {QuotaKind.PRODUCER_BYTE_RATE: 1e6}})
        metering = Metering(self._settings.usage, Engine(default))
        shipper = shipper_of(self._settings, lambda: ((columns, None) async for columns in metering.take_usage()))
        assert shipper is not None  # noqa: S101  the settings have a section usage
        self._shipper = shipper
        listener = metering.accounts_of("BENCH")
        self._meters = [
            listener.hold(number % BROKERS, f"user-{number % USERS}", f"application-{number}").meter
            for number in range(CLIENTS)
        ]
        self._lags_ms: list[float] = []
        self._own_ms: list[float] = []
        """For each lag, the part that can be this process's own work: its CPU time meanwhile."""

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        lines = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        load = loop.create_task(self._load())
        gc.collect()
        gc.freeze()  # as the program does
        shipping = False
        while name := (await lines.readline()).decode().strip():
            if name != "not shipping" and not shipping:
                self._shipper.start()
                shipping = True
            print(json.dumps(await self._phase(name, lines.readline)), flush=True)
        await self._shipper.stop(5.0)
        load.cancel()

    async def _phase(self, name: str, ended: Callable[[], Any]) -> Phase:
        counts = self._shipper.shipping
        self._lags_ms, self._own_ms = [], []
        begun_s, cpu_s, shipped = monotonic_s(), time.process_time(), counts.shipped_rows
        dropped = counts.dropped_documents
        await ended()
        seconds = monotonic_s() - begun_s
        lags_ms, own_ms = (statistics.quantiles(lags, n=1000) for lags in (self._lags_ms, self._own_ms))
        return {
            "phase": name,
            "seconds": seconds,
            "cpu": (time.process_time() - cpu_s) / seconds,
            "lag_p50_ms": lags_ms[499],
            "lag_p99_ms": lags_ms[989],
            "lag_max_ms": max(self._lags_ms),
            "own_p99_ms": own_ms[989],
            "own_p999_ms": own_ms[998],
            "own_max_ms": max(self._own_ms),
            "shipped_rows_per_s": (counts.shipped_rows - shipped) / seconds,
            "dropped_documents": counts.dropped_documents - dropped,
            "buffered_bytes": counts.buffered_bytes,
        }

    async def _load(self) -> None:
        """Update some meters every millisecond, each one once a second, and record how late that is."""
        raised = 0
        begun_s = due_s = monotonic_s()
        while True:
            due_s = max(due_s + TICK_S, monotonic_s())
            cpu_s = time.thread_time()
            await asyncio.sleep(due_s - monotonic_s())
            now_s = monotonic_s()
            lag_s = max(0.0, now_s - due_s)
            self._lags_ms.append(lag_s * 1000)
            self._own_ms.append(min(lag_s, time.thread_time() - cpu_s) * 1000)
            due = round((now_s - begun_s) * CLIENTS)
            for number in range(raised, due):
                meter = self._meters[number % CLIENTS]
                meter.produce_requests += 1 + number % 9
                meter.produce_bytes += 1000 + number % 100_000
                meter.other_requests += 1
                meter.other_bytes += 60
                meter.bytes_out += 400 + number % 700
                meter.request_time_ms += number % 300
            raised = due


async def _documents(bootstrap: str) -> list[Phase]:
    found = []
    async with AIOKafkaConsumer(TOPIC, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        while batches := await consumer.getmany(timeout_ms=3000):
            for record in (record for records in batches.values() for record in records):
                document = json.loads(record.value)
                rows = len(document.pop("rows")["user"])
                found.append({"seq": document["seq"], "rows": rows, "dropped": document["dropped_documents"]})
    return found


def _compare(found: list[Phase]) -> dict[str, int]:
    """Return the numbers of documents received, missing by sequence number, and dropped by the proxy's own count."""
    rows = {document["seq"]: document["rows"] for document in found}
    return {
        "documents": len(rows),
        "rows": sum(rows.values()),
        "twice": len(found) - len(rows),
        "missing": max(rows) + 1 - len(rows),
        "dropped": max(document["dropped"] for document in found),
    }


def _table(phases: list[Phase]) -> str:
    idle = phases[0]["cpu"]
    figures = ("lag_p50_ms", "lag_p99_ms", "lag_max_ms", "own_p99_ms", "own_p999_ms", "own_max_ms")
    heads = ("lag p50", "p99", "max ms", "own p99", "p99.9", "max ms")
    lines = [f"{'phase':<15}{'s':>5}{'CPU':>8}{'more':>8}" + "".join(f"{head:>9}" for head in heads) + f"{'rows/s':>9}"]
    lines += [
        f"{each['phase']:<15}{each['seconds']:>5.0f}{each['cpu']:>8.2%}{each['cpu'] - idle:>8.2%}"
        + "".join(f"{each[figure]:>9.2f}" for figure in figures)
        + f"{each['shipped_rows_per_s']:>9,.0f}"
        for each in phases
    ]
    lines.append(f"aims: {MOST_CPU:.0%} more of a core, p99 {MOST_LAG_MS:g} ms")
    return "\n".join(lines)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.usage", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each phase but the outage (default 60)")
    parser.add_argument("--outage", type=float, default=600.0, help="how many seconds the topic is away (default 600)")
    parser.add_argument("--buffer", default="64MiB", help="usage.buffer (default 64MiB, as in the product)")
    parser.add_argument("--no-save", action="store_true", help="keep no file of the figures")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
