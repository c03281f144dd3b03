"""Files of a batch on their way into the table: written aside, then put in their places, one partition after the other.

A kill leaves partitions that are whole, and aside what nobody reads: names that begin with a dot.
"""

from typing import Final

from analysis.ingest.known import Hour
from analysis.spark.folder import Folder

_ASIDE: Final = ".staging-"
_LEFT: Final = (f"{_ASIDE}*", ".spark-staging-*")
"""The second is of Spark, which wrote the files of earlier versions."""


class Publication:
    """Partitions (date, hour, batch) of one batch."""

    def __init__(self, usage: Folder, batch: str) -> None:
        self._usage = usage
        self._batch = batch
        self._aside = f"{_ASIDE}{batch}"
        self._files: dict[Hour, int] = {}
        usage.remove(self._aside)

    def add(self, hour: Hour, content: bytes) -> None:
        """Write a file of rows of an hour aside."""
        number = self._files.get(hour, 0)
        self._usage.write(f"{self._aside}/{_partition(hour)}/part-{number:05}.parquet", content)
        self._files[hour] = number + 1

    def publish(self) -> None:
        """Put all in place, for what an earlier try of the batch left there."""
        for hour in sorted(self._files):
            partition = _partition(hour)
            self._usage.move(f"{self._aside}/{partition}", f"{partition}/batch={self._batch}")
        self._usage.remove(self._aside)


def remove_left(usage: Folder) -> None:
    """Remove what writers that were killed left aside."""
    for pattern in _LEFT:
        for name in usage.names(pattern):
            usage.remove(name)


def _partition(hour: Hour) -> str:
    return f"date={hour.date}/hour={hour.hour:02}"
