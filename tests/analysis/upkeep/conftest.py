"""A warehouse with batches as ingestion publishes them, without a stream: they cost no job of Spark."""

import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from analysis.ingest.known import Hour
from analysis.ingest.publishing import Publication
from analysis.spark.folder import Folder
from analysis.table import at_hand
from analysis.table import warehouse as tables
from analysis.table.parquet import encode
from analysis.table.scan import UsageRows
from analysis.table.schema import FILE
from analysis.upkeep.compaction import Compacted, Compaction, CompactRequest
from analysis.upkeep.expiry import Expired, ExpireRequest, Expiry
from tests.analysis.records import BEGIN, Document, document, row, rows_of, stored

STREAM = "5cbb13a0-7a3c-4a9a-9d6a-7a4b2a53a1de"
LATER = BEGIN + timedelta(days=2)
GRACE_S = 3600


class Filled:
    """A warehouse; now is two days after BEGIN unless ``now_s`` says otherwise."""

    def __init__(self, spark: SparkSession, place: str) -> None:
        self.spark = spark
        self.place = place
        tables.create(spark, place)
        self.usage = Folder(spark, tables.path_of(place, tables.USAGE))
        self.warehouse = Folder(spark, place)
        self.reports = Folder(spark, f"{place}-reports")
        self.now_s = LATER.timestamp()
        self.told: list[str] = []

    def publish(self, number: int, documents: Iterable[Document], stream: str = STREAM) -> None:
        """Store documents as a batch: a file for each."""
        publication = Publication(self.usage, f"{stream}-{number}")
        for each in documents:
            publication.add(Hour.of(each["time_ms"]), encode(pa.Table.from_pylist(stored([each]), FILE)))
        publication.publish()

    def publish_hours(self, number: int, documents: Iterable[Document]) -> None:
        """Store documents as a batch: a file for each hour."""
        publication = Publication(self.usage, f"{STREAM}-{number}")
        hours: dict[Hour, list[Document]] = {}
        for each in documents:
            hours.setdefault(Hour.of(each["time_ms"]), []).append(each)
        for hour, of_hour in hours.items():
            publication.add(hour, encode(pa.Table.from_pylist(stored(of_hour), FILE)))
        publication.publish()

    def commit(self, number: int, stream: str = STREAM, name: str = "files") -> None:
        """Have a checkpoint that says so of a batch."""
        self.warehouse.write(f"checkpoints/{name}/metadata", json.dumps({"id": stream}))
        self.warehouse.write(f"checkpoints/{name}/commits/{number}", "v1\n{}")

    def compact(
        self, *, older_s: int = 7200, target_bytes: int = 10**8, grace_s: int = GRACE_S, dry_run: bool = False
    ) -> Compacted:
        request = CompactRequest(older_s, target_bytes, grace_s, dry_run)
        return Compaction(self.warehouse, self.usage, request, self.told.append, lambda: self.now_s).run()

    def expire(self, *, keep_s: int, grace_s: int = GRACE_S, dry_run: bool = False) -> Expired:
        request = ExpireRequest(keep_s, grace_s, dry_run)
        reports = [self.warehouse, self.reports]
        return Expiry(self.warehouse, self.usage, reports, request, self.told.append, lambda: self.now_s).run()

    def read(self, begin: datetime | None = None) -> tuple[UsageRows, UsageRows]:
        """What our own readers find: one for which it is little, and one for which it is much."""
        little = tables.usage(self.spark, self.place, begin)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(at_hand, "FEW_FILES", 0)
            return little, tables.usage(self.spark, self.place, begin)

    def paths(self) -> list[str]:
        """The files that our own readers would open."""
        little, much = (sorted(usage.paths()) for usage in self.read())
        assert little == much
        return little

    def rows(self) -> list[dict[str, Any]]:
        """All rows, as our own readers find them."""
        return rows_of(tables.usage(self.spark, self.place))

    def keys(self) -> list[tuple[Any, ...]]:
        """All rows by what is theirs alone, as an engine finds them that knows nothing of Sluice."""
        query = "SELECT instance, seq, user FROM read_parquet(?, hive_partitioning=true) ORDER BY ALL"
        return duckdb.execute(query, [f"{self.place}/usage/date=*/hour=*/batch=*/*.parquet"]).fetchall()

    def listed(self) -> list[tuple[Any, ...]]:
        """The same in the files that our own readers would open."""
        paths = self.paths()
        query = "SELECT instance, seq, user FROM read_parquet(?) ORDER BY ALL"
        return duckdb.execute(query, [[path.removeprefix("file:") for path in paths]]).fetchall()

    def files(self, place: str = "date=*/hour=*") -> list[str]:
        """Files of the table."""
        root = Path(self.place) / "usage"
        return sorted(str(each.relative_to(root)) for each in root.glob(f"{place}/batch=*/*.parquet"))


@pytest.fixture
def filled(spark: SparkSession, warehouse: str) -> Filled:
    return Filled(spark, warehouse)


DOCUMENTS = [
    document(seq, [row("alice", bytes_in=seq), row("bob", produce_limit=10.5, ip=None)], second=900 * seq)
    for seq in range(12)
]
"""Four in each of three hours."""


@pytest.fixture
def busy(filled: Filled) -> Filled:
    """Twelve batches, all but the last over; 12:00 and 13:00 are closed, 14:00 is the newest hour."""
    for number, each in enumerate(DOCUMENTS):
        filled.publish(number, [each])
    return filled
