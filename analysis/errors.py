"""Errors that the user can fix, and the cause of one in Spark's long messages."""

import re
from typing import Final


class AnalysisError(Exception):
    """An error in one line: the finding, its place and the fix. The command line exits with 2."""


class RunError(AnalysisError):
    """A valid request that failed while it ran. The command line exits with 1, unless that is an answer."""


_RAISED: Final = re.compile(r"(?:Caused by: )?([\w.$]*(?:Error|Exception): .+)")
_TERMINATED: Final = re.compile(r"terminated with exception: (.+?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
_OURS: Final = re.compile(rf"{re.escape(AnalysisError.__module__)}\.(AnalysisError|RunError): ")
_LOSS: Final = re.compile(r"failOnDataLoss|KAFKA_DATA_LOSS")
_SECOND: Final = re.compile(
    r"CONCURRENT_STREAM_LOG_UPDATE|Multiple streaming jobs detected|ConcurrentModificationException"
)
_OTHER_PYTHON: Final = re.compile(r"PYTHON_VERSION_MISMATCH\].*?version: ([\d.]+) than that in driver: ([\d.]+)")
_NO_MODULE: Final = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_CORRUPT: Final = re.compile(r"Record batch for partition (\S+) at offset (\d+) is invalid, cause: (.+)")
_FULL: Final = re.compile(r"No space left on device|Disk quota exceeded")
_NEEDED: Final = 'with numpy, orjson, pandas and pyarrow (docs/analysis.md, "On a cluster")'


def next_run(error: Exception) -> str:
    """Return what the next run will do after this error."""
    if _LOSS.search(str(error)):
        return "the next run will fail too; --accept-loss continues with what is left"
    return "the next run continues where this one stopped"


def of_worker(error: Exception) -> str | None:
    """Return the message of an AnalysisError raised in a Python worker, which Spark wraps in a long message.

    For DuckDB's errors, and some of Spark's own, returns a message with the fix. None: neither.
    """
    told = str(error)
    lines = [line.strip() for line in told.splitlines()]
    if (ours := next((line for line in reversed(lines) if _OURS.match(line)), None)) is not None:
        return _OURS.sub("", ours, count=1)
    if found := _OTHER_PYTHON.search(told):
        worker, driver = found.groups()
        return (
            f"workers run Python {worker}, and this program runs {driver}: "
            f"set PYSPARK_PYTHON to a Python {driver} that each worker has, {_NEEDED}"
        )
    if found := _NO_MODULE.search(told):
        return (
            f"workers have no Python package {found[1]}: set PYSPARK_PYTHON to a Python that each worker has, {_NEEDED}"
        )
    if found := _CORRUPT.search(told):
        return (
            f"partition {found[1]}, offset {found[2]}: {found[3]}: the log is damaged there; delete the records before "
            "the next offset (kafka-delete-records.sh), then continue with --accept-loss"
        )
    if _FULL.search(told):
        return "a disk is full: free some space for the warehouse, reports, or Spark's files (spark.local.dir, or /tmp)"
    if _SECOND.search(told):
        return "another ingest wrote to the same checkpoint: only one may run, so this one ends"
    if type(error).__module__ == "_duckdb":  # not imported: most commands do without
        return f"gold cannot be read: {lines[0]}: run this again, if it was made meanwhile"
    return None


def cause(error: Exception) -> str:
    """Return the line of a long message that has the cause: the last of ours, or of any exception."""
    lines = [line.strip() for line in str(error).splitlines()]
    raised = [found[1] for line in lines if (found := _RAISED.match(line))]
    return of_worker(error) or (raised or _TERMINATED.findall(str(error)) or lines)[-1]
