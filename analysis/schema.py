"""Shapes: a document of usage records (docs/usage-records.md), and the row that a table keeps of it."""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

VERSION: Final = 1
"""Of documents, the one that is read: ``v`` changes when the meaning of something that is there changes."""

TEXT: Final = pa.string()
COUNT: Final = pa.int64()
SMALL: Final = pa.int32()
LIMIT: Final = pa.float64()
TIME: Final = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a document, and what it is worth where a document has none of it, or null in it."""

    name: str
    type: pa.DataType
    missing: int | str | None = 0
    least: int | None = 0
    """Numbers below it make a document unreadable."""


def _limit(name: str) -> Column:
    return Column(name, LIMIT, missing=None)


def _rule(name: str) -> Column:
    return Column(name, TEXT, missing=None, least=None)


def _of(kind: str) -> tuple[Column, ...]:
    counts = ("bytes", "requests", "throttle_ms", "throttled", "muted_ms")
    return (
        *(Column(f"{kind}_{name}", COUNT) for name in counts),
        _limit(f"{kind}_limit"),
        _rule(f"{kind}_rule"),
    )


COLUMNS: Final = (
    Column("listener", TEXT, missing="", least=None),
    Column("broker", SMALL, missing=-1, least=-1),
    Column("user", TEXT, missing=None, least=None),
    Column("client_id", TEXT, missing=None, least=None),
    *(Column(name, COUNT) for name in ("bytes_in", "bytes_out", "requests", "request_time_ms", "connections")),
    *(Column(name, COUNT) for name in ("connections_opened", "connections_refused")),
    *_of("produce"),
    *_of("fetch"),
)
"""All columns of ``rows`` in a document."""

FIELDS: Final = (
    Column("cluster", TEXT, missing="", least=None),
    Column("instance", TEXT, missing=None, least=None),
    Column("boot", TEXT, missing=None, least=None),
    Column("seq", COUNT, missing=None),
    Column("interval_ms", COUNT, missing=None),
    Column("mode", TEXT, missing="enforce", least=None),
    Column("samples", SMALL, missing=11, least=None),
    Column("sample_ms", COUNT, missing=1000, least=None),
)
"""What a document says once and each of its rows has, besides ``time_ms``; missing None: it must be there."""

FILE: Final = pa.schema(
    [("time", TIME), *((field.name, field.type) for field in FIELDS), *((each.name, each.type) for each in COLUMNS)]
)
"""A row of ``usage`` as it is in files: one entity in one interval. ``time`` is where the interval begins."""

ROWS: Final[StructType] = from_arrow_schema(pa.schema([*FILE, ("date", pa.date32()), ("hour", SMALL)]))
"""The same as Spark has it, with ``date`` and ``hour``, in UTC: partitions of the table."""
