"""Usage records of the run, ingested and reported with the operator's commands."""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

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


def make_report(bootstrap: str, say: Callable[[str], None]) -> str:
    """Ingest the topic's records, write a report in FOLDER, replacing an earlier one, and return what the command says.

    Raises ProcessError with the command's output.
    """
    time.sleep(SHIPPED_S)
    shutil.rmtree(FOLDER, ignore_errors=True)
    warehouse = ("--warehouse", str(FOLDER / "warehouse"))
    say("ingesting the usage records of this run (sluice analyze ingest) …")
    topic = ("--bootstrap", bootstrap, "--topic", TOPIC, "--jars", str(jar_dir(SPARK_KAFKA.name)))
    _analyze("ingest", *warehouse, *topic, "--once", *_HEAP)
    return _analyze("report", *warehouse, "--out", str(FOLDER))


def _analyze(*arguments: str) -> str:
    command = [str(SLUICE), "analyze", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise ProcessError(f"sluice analyze {arguments[0]} failed:\n{done.stderr}")
    return done.stdout
