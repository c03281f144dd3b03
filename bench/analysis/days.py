"""``python -m bench.analysis.days``: what a report of many days costs, from rows, and with all but the last summed up.

A world of records is ingested once, and copied to as many days: what is measured are `summarize` and `report`.
"""

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.analysis.__main__ import HEAP
from bench.analysis.generated import World, generate
from bench.analysis.process_tree import Cost, run
from bench.errors import BenchError
from tests.harness.jars import cache_dir

FIRST: Final = date(2026, 1, 5)
"""Of the generated records."""
_ANALYSIS: Final = (sys.executable, "-m", "analysis")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.analysis.days", description=__doc__)
    parser.add_argument("--days", type=int, default=10, help="(default %(default)s)")
    parser.add_argument("--rows", type=int, default=3_000_000, help="of each day (default %(default)s)")
    parser.add_argument("--clients", type=int, default=1000, help="(default %(default)s)")
    parser.add_argument("--heap", default=HEAP, help="memory of the JVM (default %(default)s)")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # or Spark would outlive us
    try:
        with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
            _measure(options, Path(folder))
    except BenchError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _measure(options: argparse.Namespace, folder: Path) -> None:
    rows_per_s = min(900, options.clients)
    world = generate(World("days", options.clients, rows_per_s, options.rows), cache_dir() / "bench-analysis")
    warehouse = folder / "warehouse"
    source = ("--files", str(world.documents_folder), "--once")
    run([*_ANALYSIS, "ingest", "--warehouse", str(warehouse), *source], folder / "ingest.log")
    _copy(warehouse, options.days)
    print(f"{options.days} days of {world.rows:,} rows, {options.clients:,} clients", flush=True)
    where = ("--warehouse", str(warehouse), "--conf", f"spark.driver.memory={options.heap}")
    period = ("--from", str(FIRST), "--to", str(FIRST + timedelta(days=options.days)))
    report = [*_ANALYSIS, "report", *where, *period, "--out"]
    _say("report, from rows", run([*report, str(folder / "rows")], folder / "rows.log"))
    _say("summarize, all days", run([*_ANALYSIS, "summarize", *where], folder / "summarize.log"))
    shutil.rmtree(warehouse / "summaries" / f"date={FIRST + timedelta(days=options.days - 1)}")
    _say("report, of the last day's rows", run([*report, str(folder / "sums")], folder / "sums.log"))
    sizes = [
        sum(file.stat().st_size for file in (warehouse / name).rglob("*.parquet")) for name in ("usage", "summaries")
    ]
    print(f"{sizes[0] / 1e6:,.0f} MB of rows, {sizes[1] / 1e6:,.1f} MB of sums (one day less)")


def _say(what: str, cost: Cost) -> None:
    print(
        f"{what:<32} {cost.cpu_s:6.0f} CPU s ({cost.jvm_cpu_s:.0f} Java)  {cost.wall_s:5.0f} s  "
        f"{cost.peak_bytes / 2**30:.1f} GiB",
        flush=True,
    )


def _copy(warehouse: Path, days: int) -> None:
    """Have the same rows a day later, and so on, as batches and boots of their own."""
    for file in sorted(warehouse.glob("usage/date=*/hour=*/batch=*/*.parquet")):
        table = pq.read_table(pa.py_buffer(file.read_bytes()))
        day, hour, batch, name = file.relative_to(warehouse / "usage").parts
        stream, _, number = batch.rpartition("-")
        for later in range(1, days):
            copied = date.fromisoformat(day.removeprefix("date=")) + timedelta(days=later)
            place = warehouse / "usage" / f"date={copied}" / hour / f"{stream}-{int(number) + 1000 * later}"
            place.mkdir(parents=True, exist_ok=True)
            time = pc.add(table["time"], pa.scalar(timedelta(days=later))).cast(table.schema.field("time").type)
            boot = pc.binary_join_element_wise(table["boot"].cast(pa.string()), str(later), "-")
            moved = table.set_column(table.schema.get_field_index("time"), "time", time)
            moved = moved.set_column(moved.schema.get_field_index("boot"), "boot", boot)
            texts = [field.name for field in moved.schema if field.type == pa.string()]
            pq.write_table(moved, place / name, compression="zstd", use_dictionary=texts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
