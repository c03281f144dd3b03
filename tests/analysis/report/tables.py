"""Tables of two reports, side by side."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def differing(spark: SparkSession, one: Path, other: Path, names: Sequence[str]) -> list[str]:
    """Return the names of those that do not have the same rows."""
    return [name for name in names if not _same(_rows(spark, one / name), _rows(spark, other / name))]


def _rows(spark: SparkSession, place: Path) -> list[list[Any]]:
    return sorted(map(list, spark.read.parquet(str(place)).collect()), key=lambda row: list(map(str, row)))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)  # sums in another order
    return bool(one == other)
