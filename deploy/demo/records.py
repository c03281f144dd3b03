"""Usage records of the run, ingested and reported with the operator's commands."""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from tests.harness.jars import SPARK_KAFKA, jar_dir
from tests.harness.process import ProcessError

TOPIC: Final = "sluice-usage"
SETTINGS: Final[Mapping[str, Any]] = {
    "topic": {"name": TOPIC, "partitions": 1},
    "instance": "demo",
    "interval": "100ms",  # equal to the quotas' sample size, so that usage is seen over the quota window
}
SHIPPED_S: Final = 3.0
"""The time until the last interval's records are in the topic."""
FOLDER: Final = Path(__file__).parents[2] / "build" / "demo"
SLUICE: Final = Path(sys.executable).parent / "sluice"
_TIMEOUT_S: Final = 300.0
_HEAP: Final = ("--conf", "spark.driver.memory=1g")


@dataclass(frozen=True, slots=True)
class Report:
    """The report's summary sentence, and its page."""

    sentence: str
    html: Path

    @property
    def folder(self) -> Path:
        """The folder with its tables and chargeback.csv."""
        return self.html.parent


def make_report(bootstrap: str, say: Callable[[str], None]) -> Report:
    """Ingest the topic's records and write a report in FOLDER, replacing an earlier one.

    Raises ProcessError with the command's output.
    """
    time.sleep(SHIPPED_S)
    shutil.rmtree(FOLDER, ignore_errors=True)
    warehouse = ("--warehouse", str(FOLDER / "warehouse"))
    say("ingesting the usage records of this run (sluice analyze ingest) …")
    topic = ("--bootstrap", bootstrap, "--topic", TOPIC, "--jars", str(jar_dir(SPARK_KAFKA.name)))
    _analyze("ingest", *warehouse, *topic, "--once", *_HEAP)
    say("writing a report (sluice analyze report) …")
    sentence, html = _analyze("report", *warehouse, "--out", str(FOLDER)).splitlines()[-2:]
    return Report(sentence, Path(html))


def print_report(console: Console, report: Report) -> None:
    """Print the throttled clients from the report, and its path."""
    console.print(f"\n{report.sentence}", markup=False, highlight=False, soft_wrap=True)
    table = Table(title="Throttled, by the usage records", title_justify="left")
    table.add_column("client", no_wrap=True)
    table.add_column("broker", justify="right")
    table.add_column("by the quota of", overflow="fold", min_width=25)
    for name in ("episodes", "requests", "throttled"):
        table.add_column(name, justify="right", no_wrap=True)
    for (client_id, broker, rule), (episodes, requests, muted_ms) in _throttled(report).items():
        table.add_row(client_id, str(broker), rule, str(episodes), str(requests), f"{muted_ms / 1000:.1f} s")
    console.print(table)
    console.print(f"The whole report: {report.html}", markup=False, highlight=False, soft_wrap=True)


def _throttled(report: Report) -> dict[tuple[str, int, str], tuple[int, int, int]]:
    """Return episodes, throttled requests and milliseconds, by client, broker and rule."""
    columns = ("client_id", "broker", "rule", "throttled", "muted_ms")
    found: dict[tuple[str, int, str], tuple[int, int, int]] = {}
    for episode in pq.read_table(report.folder / "episodes.parquet", columns=list(columns)).to_pylist():
        key = (episode["client_id"], episode["broker"], episode["rule"])
        episodes, requests, muted_ms = found.get(key, (0, 0, 0))
        found[key] = (episodes + 1, requests + episode["throttled"], muted_ms + episode["muted_ms"])
    return dict(sorted(found.items()))


def _analyze(*arguments: str) -> str:
    command = [str(SLUICE), "analyze", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise ProcessError(f"sluice analyze {arguments[0]} failed:\n{done.stderr}")
    return done.stdout
