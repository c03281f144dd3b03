"""Warehouses of documents made by hand: rows as ingestion stores them, and gold as it is made of them."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from analysis.demand import sums
from analysis.demand.rows import Rows
from analysis.demand.sums import Sums
from analysis.gold.build import make
from analysis.ingest import files
from analysis.ingest.job import Ingestion
from analysis.ingest.running import run
from analysis.spark.session import SparkSettings
from analysis.warehouse import HOUR, Period
from analysis.whatif.job import WhatIf, whatif
from analysis.whatif.scenarios import Scenario
from quotas.policy import Policy
from tests.analysis.records import BEGIN, Document, write_jsonl

ALL: Final = Period()


def warehouse_of(spark: SparkSession, documents: Iterable[Document], folder: Path) -> str:
    """Return a warehouse with these documents, taken in from a file, and with its gold."""
    source, warehouse = folder / "documents", str(folder / "warehouse")
    source.mkdir(parents=True)
    write_jsonl(source / "edge-1-boot-1-000000.jsonl", documents)
    ingestion = Ingestion(files.source(spark, str(source), 1000), warehouse, lambda _: None)
    run(ingestion, f"{warehouse}/checkpoints/files", None)
    make(spark, warehouse)
    return warehouse


def hours_of(
    spark: SparkSession, recordings: Mapping[str, Iterable[Document]], folder: Path
) -> tuple[str, dict[str, Period]]:
    """Return a warehouse with several recordings, each in an hour of its own, and the hours.

    Making gold costs seconds, and hours next to nothing. Each recording is of proxies that were started for it.
    """
    made, hours = [], {}
    for number, (name, documents) in enumerate(recordings.items()):
        begin = BEGIN.replace(hour=number)
        hours[name] = Period(begin, begin + HOUR)
        later_ms = (begin - BEGIN) // timedelta(milliseconds=1)
        made += [
            {**each, "time_ms": each["time_ms"] + later_ms, "boot": f"{each['boot']} {name}"} for each in documents
        ]
    return warehouse_of(spark, made, folder), hours


def sums_of(warehouse: str, period: Period = ALL) -> Sums:
    return sums.read(warehouse, period)


def rows_of(warehouse: str, period: Period = ALL) -> Rows:
    return Rows("tests", SparkSettings(), warehouse, period)


def answered(warehouse: str, *policies: Policy, period: Period = ALL) -> WhatIf:
    """Return what-if of quotas, by the names ``quotas-0`` and so on."""
    scenarios = [Scenario(f"quotas-{number}", policy) for number, policy in enumerate(policies)]
    return whatif(sums_of(warehouse, period), scenarios, rows_of(warehouse, period))
