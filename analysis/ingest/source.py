"""The interface of sources (a topic or files), and the origin of a text."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame

KEPT_BYTES: Final = 2**16
"""The part of a rejected text that is kept."""


class Origin(NamedTuple):
    """The origin of a text: topic, partition and offset, or file and line (from 1)."""

    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        if self.topic is None:
            return f"{self.file}, line {self.line}"
        return f"topic {self.topic}, partition {self.partition}, offset {self.offset}"

    def order(self) -> tuple[Any, ...]:
        """Return the sort key: every attempt at a batch has the same order."""
        return tuple((each is not None, each) for each in self)


class Text(NamedTuple):
    """A text, or the first KEPT_BYTES of one that is too large; ``size`` is its whole length."""

    value: bytes
    size: int
    place: Origin
    stamped_ms: int | None = None
    """The broker's own timestamp, if there is one."""


@dataclass(frozen=True, slots=True)
class Source:
    """A stream, and the function by which Python workers get texts from its batches."""

    stream: DataFrame
    texts: Callable[[pa.RecordBatch], Iterator[Text]]
