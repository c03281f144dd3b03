"""Warehouses of documents made by hand: rows as ingestion stores them, and gold as it is made of them."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from analysis.demand import recording, rows
from analysis.demand.recording import Recording
from analysis.gold.making import make
from analysis.schema import FILE
from analysis.spark.session import SparkSettings
from analysis.whatif.job import WhatIf, whatif
from analysis.whatif.scenarios import Scenario
from quotas.policy import Policy
from tests.analysis.records import Document, stored


def warehouse_of(spark: SparkSession, documents: Iterable[Document], folder: Path) -> str:
    """Return a warehouse with these documents, and with its gold."""
    for (date, hour), these in _by_hour(stored(documents)):
        place = folder / "usage" / f"date={date}" / f"hour={hour:02}" / "batch=b-0"
        place.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(these, FILE), place / "part-0.parquet")
    make(spark, str(folder))
    return str(folder)


def recording_of(warehouse: str) -> Recording:
    return recording.read(rows.gold(warehouse, None, None))


def answered(warehouse: str, *policies: Policy) -> WhatIf:
    """Return what-if of quotas, by the names ``quotas-0`` and so on."""
    scenarios = [Scenario(f"quotas-{number}", policy) for number, policy in enumerate(policies)]
    return whatif(
        recording_of(warehouse), scenarios, lambda: rows.charges("tests", SparkSettings(), warehouse, None, None)
    )


def _by_hour(all_rows: list[dict[str, Any]]) -> Iterator[tuple[tuple[Any, int], list[dict[str, Any]]]]:
    def hour(row: dict[str, Any]) -> tuple[Any, int]:
        return row["date"], row["hour"]

    for key, these in groupby(sorted(all_rows, key=hour), hour):
        yield key, [{name: row.get(name) for name in FILE.names} for row in these]
