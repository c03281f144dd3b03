"""Long stories of Spark's, and the line that is made of each."""

import duckdb
import pytest

from analysis.errors import cause, next_run, of_worker

WORKER = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/opt/worker.py", line 1, in main
{}
 SQLSTATE: 39000
\tat org.apache.spark.api.python.BasePythonRunner.java:1"""
MISMATCH = (
    "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different "
    "version: 3.12 than that in driver: 3.11, PySpark cannot run with different minor versions."
)
NEEDED = 'with numpy, orjson, pandas and pyarrow (docs/analysis.md, "On a cluster")'


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("analysis.errors.AnalysisError: topic t is gone", "topic t is gone"),
        (
            MISMATCH,
            (
                "workers run Python 3.12, and this program runs 3.11: "
                f"set PYSPARK_PYTHON to a Python 3.11 that each worker has, {NEEDED}"
            ),
        ),
        (
            "ModuleNotFoundError: No module named 'orjson'",
            f"workers have no Python package orjson: set PYSPARK_PYTHON to a Python that each worker has, {NEEDED}",
        ),
        (
            "org.apache.kafka.common.KafkaException: Record batch for partition t-0 at offset 2 is invalid, cause: CRC",
            (
                "partition t-0, offset 2: CRC: the log is damaged there; delete the records before the next offset "
                "(kafka-delete-records.sh), then continue with --accept-loss"
            ),
        ),
        (
            "org.apache.spark.SparkException: [CONCURRENT_STREAM_LOG_UPDATE] Multiple streaming jobs detected for 3.",
            "another ingest wrote to the same checkpoint: only one may run, so this one ends",
        ),
        (
            "java.io.IOException: No space left on device",
            "a disk is full: free some space for the warehouse, reports, or Spark's files (spark.local.dir, or /tmp)",
        ),
    ],
)
def test_worker_failure_is_cut_to_one_line(told: str, said: str) -> None:
    story = RuntimeError(WORKER.format(told))
    assert of_worker(story) == said
    assert cause(story) == said


def test_unknown_worker_failure_is_reported_by_its_exception() -> None:
    story = RuntimeError(WORKER.format("ValueError: no such thing"))
    assert of_worker(story) is None
    assert cause(story) == "ValueError: no such thing"


TERMINATED = (
    "[STREAM_FAILED] Query [id = 1] terminated with exception: Timed out. Call: describeTopics SQLSTATE: XXKST\n"
)
CAUSED = "Caused by: a.SparkException: task\nCaused by: org.apache.kafka.common.errors.TimeoutException: No\n\tat a.b"


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (f"{TERMINATED}=== Streaming Query ===\n+- ~Relation[key#7]", "Timed out. Call: describeTopics"),
        (f"{TERMINATED}{CAUSED}", "org.apache.kafka.common.errors.TimeoutException: No"),
    ],
)
def test_java_failure_is_reported_by_its_first_cause(told: str, said: str) -> None:
    assert cause(RuntimeError(told)) == said


def test_data_loss_error_says_the_next_run_fails_too() -> None:
    assert (
        next_run(RuntimeError("[KAFKA_DATA_LOSS.X] set failOnDataLoss to false"))
        == "the next run will fail too; --accept-loss continues with what is left"
    )
    assert next_run(RuntimeError("no space left")) == "the next run continues where this one stopped"


def test_duckdb_error_is_said_in_one_line() -> None:
    with pytest.raises(duckdb.Error) as raised:
        duckdb.execute("FROM read_parquet('/nowhere/part.parquet')")
    assert of_worker(raised.value) == (
        'gold cannot be read: IO Error: No files found that match the pattern "/nowhere/part.parquet": '
        "run this again, if it was made meanwhile"
    )
