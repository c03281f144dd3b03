"""The same Parquet for Spark and for DuckDB, which answers independently."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession

from analysis.metrics.headroom import use
from analysis.metrics.period import Period, look
from analysis.metrics.steps import steps
from tests.analysis.metrics.recorded import documents
from tests.analysis.records import usage_frame

Answer = list[tuple[object, ...]]


@dataclass(frozen=True)
class Both:
    """Rows as Spark sees them, and the table ``rows`` of DuckDB over the same files."""

    rows: DataFrame
    steps: DataFrame
    period: Period
    duck: duckdb.DuckDBPyConnection

    used: DataFrame

    def oracle(self, query: str, /, **parts: object) -> Answer:
        """Answer in SQL of DuckDB, sorted; ``{parts}`` of the query are put in."""
        return in_order(self.duck.execute(query.format(**parts)).fetchall())


@pytest.fixture(scope="session")
def both(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("rows")
    usage_frame(spark, documents(seed=int(os.environ.get("SLUICE_TEST_SEED", "7")))).write.mode("overwrite").parquet(
        str(folder)
    )
    rows = spark.read.parquet(str(folder)).cache()
    period = look(rows)
    assert period is not None
    duck = duckdb.connect()
    duck.execute("set TimeZone = 'UTC'")
    files = duck.read_parquet(f"{folder}/*.parquet")
    files.select("*, epoch_ms(time) as t").create_view("rows")
    yield Both(rows, steps(rows, period.step_s).cache(), period, duck, use(rows, period).cache())
    duck.close()
    rows.unpersist()


def of_spark(frame: DataFrame) -> Answer:
    """Return the rows, sorted."""
    return in_order([tuple(row) for row in frame.collect()])


def in_order(answer: Answer) -> Answer:
    return sorted(answer, key=lambda row: tuple((value is not None, str(value)) for value in row))


def same(found: Answer, expected: Answer) -> None:
    """Compare; floats may differ in the last digits, because sums are taken in another order."""
    assert len(found) == len(expected), (len(found), len(expected))
    for one, other in zip(found, expected, strict=True):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            if isinstance(a, float) and isinstance(b, float):
                assert a == pytest.approx(b, rel=1e-9, abs=1e-12), (one, other)
            else:
                assert a == b, (one, other)
