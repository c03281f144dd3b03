from threading import Event

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.spark import progress as module
from analysis.spark.progress import Progress

pytestmark = pytest.mark.spark


def test_steps_and_what_spark_does_about_them(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_EVERY_S", 0.01)
    told: list[str] = []
    seen_at_work = Event()

    def tell(line: str) -> None:
        told.append(line)
        if " tasks, " in line:
            seen_at_work.set()

    with Progress(spark, "report", steps=2, tell=tell) as progress:
        progress.step("episodes")
        while not seen_at_work.is_set():
            spark.range(3_000_000).select(F.sum(F.hash("id"))).collect()
        progress.step("headroom")
    assert told[0] == "report: 1 of 2, episodes"
    assert told[-1].startswith("report: 2 of 2, headroom")
    at_work = next(line for line in told if " tasks, " in line)
    assert at_work.startswith("report: 1 of 2, episodes: ")
    assert at_work.endswith(" s")
    assert " 0 MB read" not in at_work
