"""Where texts come from, a topic or files, and where each of them stood."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame

KEPT_BYTES: Final = 2**16
"""The part of a rejected text that is kept."""


class Place(NamedTuple):
    """Where a text stood: of a topic ``file`` and ``line`` (from 1) are null, of a file the others."""

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
        """Return what places are sorted by: the same for every attempt at a batch."""
        return tuple((each is not None, each) for each in self)


class Text(NamedTuple):
    """A text, or the first KEPT_BYTES of one that is too large: ``size`` is its whole length."""

    value: bytes
    size: int
    place: Place
    stamped_ms: int | None = None
    """When a broker took it in by its own clock, if that is known."""


@dataclass(frozen=True, slots=True)
class Source:
    """A stream, and the function by which Python workers take texts out of its batches."""

    stream: DataFrame
    texts: Callable[[pa.RecordBatch], Iterator[Text]]
