"""``python -m bench.analysis``: generate, measure, print figures beside aims, and keep them as JSON."""

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

from bench.analysis import figures
from bench.analysis.figures import Measured, growths
from bench.analysis.generated import World, generate
from bench.analysis.oracle import require_all, require_readings
from bench.analysis.process_tree import run
from bench.analysis.steps import GOLD, INGEST, STEPS
from bench.errors import BenchError
from tests.harness.jars import cache_dir

RESULTS: Final = Path(__file__).parents[1] / "results"
HEAP: Final = "1536m"
"""The JVM's heap: together with the Python workers it fits into 3 GiB."""
SIZES_M: Final = (2, 5, 10, 20, 100)
WIDE, STEADY = "wide", "steady"
STEADY_SIZE_M: Final = 10
WORLDS: Final = {WIDE: (100_000, 5000), STEADY: (1000, 900)}
"""Name → number of clients, and approximate rows per second."""


def main(arguments: Sequence[str]) -> int:
    options = _parse(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # or Spark would keep running
    try:
        with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
            _measure(options, Path(folder))
    except BenchError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; no figures were saved", file=sys.stderr)
        return 130
    return 0


def worlds(most_m: int, names: Sequence[str]) -> list[World]:
    """Return the worlds of up to ``most_m`` million rows, the smallest first."""
    found = [World(WIDE, *WORLDS[WIDE], size_m * 1_000_000) for size_m in SIZES_M if size_m <= most_m]
    if most_m >= STEADY_SIZE_M:
        found.append(World(STEADY, *WORLDS[STEADY], STEADY_SIZE_M * 1_000_000))
    return [world for world in found if world.name in names]


def _measure(options: argparse.Namespace, folder: Path) -> None:
    begun = datetime.now(UTC)
    steps = [step for step in STEPS if step.name in options.only.split(",")]
    document: dict[str, object] = {
        "format": 1,
        "begun": begun.isoformat(timespec="seconds"),
        "machine": {
            "cores": os.cpu_count(),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
            "kernel": platform.release(),
            "load_average": os.getloadavg()[0],
        },
        "versions": {
            name: version(name) for name in ("kafka-sluice", "pyspark", "pandas", "pyarrow", "numpy", "duckdb")
        },
        "settings": {"heap": options.heap, "scale_m": options.scale},
    }
    print(document["versions"], document["machine"], document["settings"], sep="\n")
    print(figures.row(*figures.HEADINGS), flush=True)
    measured: list[Measured] = []
    for world in worlds(options.scale, options.worlds.split(",")):
        generated = generate(world, cache_dir() / "bench-analysis")
        for step in steps:
            results = folder / world.key / step.name
            results.mkdir(parents=True)
            log = folder / f"{step.name}.log"
            cost = run(step.command(generated, results, options.heap), log)
            if step.name == INGEST:
                require_all(generated)
            if step.name == GOLD:
                require_readings(generated)
            measured.append(Measured(step.name, world.name, generated.rows, cost))
            print(measured[-1].line(step.aim), flush=True)
    print("\nBy rows:")
    for (step_name, world_name), growth in growths(measured).items():
        print(f"{step_name:<18} {world_name:<8} {growth}")
    aims = {step.name: step.aim for step in STEPS}
    document["measured"] = [each.as_json(aims.get(each.step)) for each in measured]
    if not options.no_save:
        _save(document, begun)


def _save(document: dict[str, object], begun: datetime) -> None:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"analysis-{begun:%Y-%m-%d-%H%M}-{os.cpu_count()}-cores.json"
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"\nall figures: {path.relative_to(RESULTS.parent.parent)}")


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    names = ",".join(step.name for step in STEPS)
    parser = argparse.ArgumentParser(prog="python -m bench.analysis", description=__doc__)
    parser.add_argument(
        "--scale", type=_millions, default=20, metavar="ROWS", help="the longest world: 10M, 100M (default 20M)"
    )
    parser.add_argument("--only", default=names, metavar="STEPS", help="what to measure (default %(default)s)")
    parser.add_argument("--worlds", default=",".join(WORLDS), help="in which worlds (default %(default)s)")
    parser.add_argument("--heap", default=HEAP, help="memory of the JVM (default %(default)s)")
    parser.add_argument("--no-save", action="store_true", help="keep no file of the figures")
    return parser.parse_args(arguments)


def _millions(written: str) -> int:
    number = written.upper().removesuffix("M")
    if not number.isdecimal() or int(number) < SIZES_M[0]:
        raise argparse.ArgumentTypeError(f"{written!r} is not a number of million rows like {SIZES_M[0]}M or 100M")
    return int(number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
