"""One Spark session for a run of tests: starting one costs seconds. Tests that use it are marked ``spark``."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from analysis.spark import session
from analysis.spark.session import SparkSettings

CONF = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    # The queries of gold become more classes (155) than Spark keeps: each warehouse of a test would compile them anew.
    "spark.sql.codegen.cache.maxEntries": "4000",
    # Tests are short: the second compiler and a second collector cost more than they bring.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """``local[2]``, 1 GiB, no user interface."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder = tmp_path_factory.mktemp("spark")
    places = {"spark.local.dir": str(folder), "spark.sql.warehouse.dir": str(folder / "spark-warehouse")}
    running = session.start("tests", SparkSettings("local[2]", {**CONF, **places}))
    running.sparkContext.setLogLevel("ERROR")
    yield running
    running.stop()


@pytest.fixture
def warehouse(tmp_path: Path) -> str:
    """Where a warehouse may be; nothing is there yet."""
    return str(tmp_path / "warehouse")
