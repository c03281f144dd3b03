"""`sluice analyze` as an operator runs it: on the usage topic of a run."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np

from analysis.kernel.arrays import Floats
from tests.harness.jars import SPARK_KAFKA, jar_dir
from tests.harness.rows import usage
from tests.integration.demanded import QUOTA_OF
from tests.integration.recorded import Counter

_TIMEOUT_S: Final = 500.0
_SMALL: Final = (
    *("--master", "local[2]", "--conf", "spark.driver.memory=1g"),
    # Compiling short runs well costs more than it brings.
    *("--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
)
_COUNTERS: Final = """
    SELECT client_id, broker, kind, throttled_s, throttled_least_s, throttled_most_s, sent_bytes, verdict
    FROM read_parquet(?)
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """What `whatif` says of some counters, in their order."""

    throttled_s: Floats
    least_s: Floats
    most_s: Floats
    sent_bytes: Floats
    verdicts: list[str]


def rows_of(query: str, *values: str) -> list[dict[str, Any]]:
    found = duckdb.execute(query, values)
    names = [each[0] for each in found.description]
    return [dict(zip(names, each, strict=True)) for each in found.fetchall()]


@dataclass(frozen=True, slots=True)
class Analyzed:
    """A warehouse with what was recorded in one run."""

    folder: Path

    @classmethod
    def of(cls, bootstrap: str, topic: str, folder: Path) -> "Analyzed":
        """Take the records of a topic in."""
        made = cls(folder)
        made._analyze(
            "ingest", "--bootstrap", bootstrap, "--topic", topic, "--once", "--jars", str(jar_dir(SPARK_KAFKA.name))
        )
        return made

    @classmethod
    def of_files(cls, directory: Path, folder: Path) -> "Analyzed":
        """Take the records in files in."""
        made = cls(folder)
        made._analyze("ingest", "--files", str(directory), "--once")
        return made

    def report(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of one table of the report."""
        out = self.folder / "report"
        self._analyze("report", "--out", str(out))
        return rows_of("SELECT * FROM read_parquet(?)", f"{out}/report=*/{table}.parquet")

    def units(self, quotas: str) -> list[dict[str, Any]]:
        """Return all that `whatif` says of each counter under a quota file."""
        return rows_of("SELECT * FROM read_parquet(?)", f"{self._proposed(quotas)}/whatif/*.parquet")

    def muted_s(self, client_id: str) -> float:
        """Return how long a client was held while producing, over all brokers."""
        query = f"SELECT sum(produce_muted_ms) AS ms FROM {usage(self.folder / 'warehouse')} WHERE client_id = ?"  # noqa: S608
        [found] = rows_of(query, client_id)
        return float(found["ms"]) / 1000

    def _proposed(self, quotas: str) -> Path:
        proposed = self.folder / "proposed.yaml"
        proposed.write_text(quotas, encoding="utf-8")
        out = self.folder / "whatif"
        self._analyze("whatif", "--quotas", str(proposed), "--out", str(out))
        return out

    def recommend(self, target: str) -> Path:
        """Return the quota file."""
        path = self.folder / "recommended.yaml"
        self._analyze(
            "recommend", "--per", "client-id", "--target", target, "--out", str(path), "--accept-low-confidence"
        )
        return path

    def whatif(self, quotas: str, counters: Sequence[Counter]) -> Answer:
        """Ask what a quota file would have done."""
        out = self._proposed(quotas)
        rows = duckdb.execute(_COUNTERS, [f"{out}/whatif/*.parquet"]).fetchall()
        found = {(client_id, broker, kind): values for client_id, broker, kind, *values in rows}
        mine = [found[each.client_id, each.broker, QUOTA_OF[each.word].value] for each in counters]
        throttled, least, most, sent, verdicts = zip(*mine, strict=True)
        return Answer(np.array(throttled), np.array(least), np.array(most), np.array(sent), list(verdicts))

    def bytes_of(self, client_id: str, broker: int) -> tuple[int, int]:
        """Return what is stored as produced and fetched, as an engine that is not Spark reads it."""
        rows = usage(self.folder / "warehouse")
        query = f"SELECT sum(produce_bytes), sum(fetch_bytes) FROM {rows} WHERE client_id = ? AND broker = ?"  # noqa: S608
        (sums,) = duckdb.execute(query, [client_id, broker]).fetchall()
        return int(sums[0]), int(sums[1])

    def _analyze(self, command: str, *arguments: str) -> None:
        sluice = str(Path(sys.executable).parent / "sluice")
        place = ("--warehouse", str(self.folder / "warehouse"))
        done = subprocess.run(
            [sluice, "analyze", command, *place, *arguments, *(() if command == "report" else _SMALL)],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
