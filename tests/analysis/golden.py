"""Warehouses of documents made by hand: rows as ingestion stores them, and gold as it is made of them."""

from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import SparkSession

from analysis.demand import sums
from analysis.demand.rows import Rows
from analysis.demand.sums import Sums
from analysis.gold.build import make
from analysis.ingest import files
from analysis.ingest.job import Ingestion
from analysis.ingest.running import run
from analysis.spark.session import SparkSettings
from analysis.warehouse import Period
from analysis.whatif.job import WhatIf, whatif
from analysis.whatif.scenarios import Scenario
from quotas.policy import Policy
from tests.analysis.records import Document, write_jsonl


def warehouse_of(spark: SparkSession, documents: Iterable[Document], folder: Path) -> str:
    """Return a warehouse with these documents, taken in from a file, and with its gold."""
    source, warehouse = folder / "documents", str(folder / "warehouse")
    source.mkdir(parents=True)
    write_jsonl(source / "edge-1-boot-1-000000.jsonl", documents)
    ingestion = Ingestion(files.source(spark, str(source), 1000), warehouse, lambda _: None)
    run(ingestion, f"{warehouse}/checkpoints/files", None)
    make(spark, warehouse)
    return warehouse


def sums_of(warehouse: str) -> Sums:
    return sums.read(warehouse, Period())


def rows_of(warehouse: str) -> Rows:
    return Rows("tests", SparkSettings(), warehouse, Period())


def answered(warehouse: str, *policies: Policy) -> WhatIf:
    """Return what-if of quotas, by the names ``quotas-0`` and so on."""
    scenarios = [Scenario(f"quotas-{number}", policy) for number, policy in enumerate(policies)]
    return whatif(sums_of(warehouse), scenarios, rows_of(warehouse))
