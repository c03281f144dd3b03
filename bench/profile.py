"""A profile of Sluice in one row: cProfile, sorted by each function's own time."""

import io
import pstats
import sys
from pathlib import Path
from typing import Final

from bench.errors import BenchError
from bench.measure import Duration, run_load
from bench.programs import PURE
from bench.rows import Client, Measure, choose
from bench.run import variant_for
from bench.targets import Cores, Fleet

FUNCTIONS: Final = 30


def profile(name: str, folder: Path, cores: Cores, seconds: float) -> str:
    """Return cProfile's table; it counts calls well and makes cheap functions look expensive."""
    (row,) = choose([name])
    measured = {Measure.CPU_PER_REQUEST, Measure.CPU_PER_GB, Measure.CPU_PER_CONNECTION}
    if row.measure not in measured or row.load.client is Client.JAVA:
        raise BenchError(f"{name} has no load of the generator to profile")
    output = folder / "profile.out"
    with Fleet(folder, cores, wrap=("-m", "cProfile", "-o", str(output))) as fleet:
        target = fleet.start(PURE, variant_for(row, PURE))  # cProfile sees no compiled function
        said = run_load(row.load, target, fleet, Duration(0, seconds))
        fleet.stop(target)
    if not output.exists():
        raise BenchError(f"no profile was written\n{target.log_tail()}")
    text = io.StringIO()
    pstats.Stats(str(output), stream=text).strip_dirs().sort_stats("tottime").print_stats(FUNCTIONS)
    return f"{said['requests']:,} requests, python {sys.version.split()[0]}\n{text.getvalue()}"
