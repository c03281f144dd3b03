"""The same Parquet for Spark and for DuckDB, which answers independently."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from analysis.metrics.clients import clients
from analysis.metrics.period import Period, look
from analysis.table.parts import Parts
from analysis.table.scan import FILES, UsageRows
from tests.analysis.metrics.recorded import documents
from tests.analysis.records import file_of, framed, headroom_of, muted_of

Answer = list[tuple[object, ...]]
FILES_OF_ROWS = 3
"""Rows of one time, and of one client, are in all of them."""


@dataclass(frozen=True)
class Both:
    """Rows as the analysis sees them, and the table ``rows`` of DuckDB over the same files."""

    usage: UsageRows
    period: Period
    duck: duckdb.DuckDBPyConnection
    clients: Parts
    muted: Parts
    headroom: Parts

    def oracle(self, query: str, /, **parts: object) -> Answer:
        """Answer in SQL of DuckDB, sorted; ``{parts}`` of the query are put in."""
        return in_order(self.duck.execute(query.format(**parts)).fetchall())


@pytest.fixture(scope="session")
def both(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("rows")
    everything = list(documents(seed=int(os.environ.get("SLUICE_TEST_SEED", "7"))))
    for part in range(FILES_OF_ROWS):
        (folder / f"{part}.parquet").write_bytes(file_of(everything[part::FILES_OF_ROWS]))
    contents = [(str(path), path.read_bytes()) for path in sorted(folder.glob("*.parquet"))]
    frame = spark.createDataFrame(contents, FILES).repartition(2).cache()
    usage = UsageRows(frame)
    period = look(usage)
    assert period is not None
    duck = duckdb.connect()
    duck.execute("set TimeZone = 'UTC'")
    files = duck.read_parquet(f"{folder}/*.parquet")
    files.select("*, epoch_ms(time) as t").create_view("rows")
    yield Both(usage, period, duck, clients(usage, period.rows), muted_of(usage), headroom_of(usage, period))
    duck.close()
    frame.unpersist()


def of_spark(frame: DataFrame | Parts | pa.Table) -> Answer:
    """Return the rows, sorted."""
    asked = frame if isinstance(frame, DataFrame) else framed(frame)
    return in_order([tuple(row) for row in asked.collect()])


def in_order(answer: Answer) -> Answer:
    return sorted(answer, key=lambda row: tuple((value is not None, str(value)) for value in row))


def same(found: Answer, expected: Answer, rel: float = 1e-9) -> None:
    """Compare; floats may differ in the last digits, because sums are taken in another order."""
    assert len(found) == len(expected), (len(found), len(expected))
    for one, other in zip(found, expected, strict=True):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            if isinstance(a, float) and isinstance(b, float):
                assert a == pytest.approx(b, rel=rel, abs=1e-12), (one, other)
            else:
                assert a == b, (one, other)
