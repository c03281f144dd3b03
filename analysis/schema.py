"""Shapes: a document of usage records (docs/usage-records.md), and the row that a table keeps of it."""

from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

VERSION: Final = 1
"""Of documents, the one that is read: ``v`` changes when the meaning of something that is there changes."""

_TEXT: Final = StringType()
_COUNT: Final = LongType()


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a document, and what it is worth where a document has none of it, or null in it."""

    name: str
    type: DataType
    missing: int | str | None = 0
    least: int | None = 0
    """Numbers below it make a document unreadable."""


def _limit(name: str) -> Column:
    return Column(name, DoubleType(), missing=None)


def _rule(name: str) -> Column:
    return Column(name, _TEXT, missing=None, least=None)


def _of(kind: str) -> tuple[Column, ...]:
    counts = ("bytes", "requests", "throttle_ms", "throttled", "muted_ms")
    return (
        *(Column(f"{kind}_{name}", _COUNT) for name in counts),
        _limit(f"{kind}_limit"),
        _rule(f"{kind}_rule"),
    )


COLUMNS: Final = (
    Column("listener", _TEXT, missing="", least=None),
    Column("broker", IntegerType(), missing=-1, least=-1),
    Column("user", _TEXT, missing=None, least=None),
    Column("client_id", _TEXT, missing=None, least=None),
    *(Column(name, _COUNT) for name in ("bytes_in", "bytes_out", "requests", "request_time_ms", "connections")),
    *(Column(name, _COUNT) for name in ("connections_opened", "connections_refused")),
    *_of("produce"),
    *_of("fetch"),
)
"""All columns of ``rows`` in a document."""

_IDENTITY: Final = (
    StructField("cluster", _TEXT),
    StructField("instance", _TEXT),
    StructField("boot", _TEXT),
    StructField("seq", _COUNT),
)
_CIRCUMSTANCES: Final = (
    StructField("interval_ms", _COUNT),
    StructField("mode", _TEXT),
    StructField("samples", IntegerType()),
    StructField("sample_ms", _COUNT),
)

HEADER: Final = StructType([StructField("v", _COUNT), *_IDENTITY[1:], StructField("time_ms", _COUNT)])
"""What must be known of a document before the whole of it is read."""

DOCUMENT: Final = StructType(
    [
        StructField("v", _COUNT),
        *_IDENTITY,
        StructField("time_ms", _COUNT),
        *_CIRCUMSTANCES,
        StructField("rows", StructType([StructField(column.name, ArrayType(column.type)) for column in COLUMNS])),
    ]
)
"""A document, as ``from_json`` takes it; what it does not name is ignored."""

ROWS: Final = StructType(
    [
        StructField("time", TimestampType()),
        *_IDENTITY,
        *_CIRCUMSTANCES,
        *(StructField(column.name, column.type) for column in COLUMNS),
        StructField("date", DateType()),
        StructField("hour", IntegerType()),
    ]
)
"""A row of ``usage``: one entity in one interval. ``time`` is where the interval begins; ``date`` and ``hour``, in
UTC, are partitions of the table."""
