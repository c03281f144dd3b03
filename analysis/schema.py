"""Shapes: a document of usage records (docs/usage-records.md), and the row that a table keeps of it."""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from quotas.kinds import BYTES, METERED, QuotaKind

VERSION: Final = 1
"""The version of documents that is read: ``v`` changes when the meaning of a field changes."""

TEXT: Final = pa.string()
COUNT: Final = pa.int64()
SMALL: Final = pa.int32()
LIMIT: Final = pa.float64()
FLAG: Final = pa.bool_()
TIME: Final = pa.timestamp("us", tz="UTC")


# Bounds that no proxy exceeds: a document that says more is wrong or forged, and is refused.
_DAY_MS: Final = 86_400_000
_2020_MS: Final = 1_577_836_800_000
_MOST_TIMES_MS: Final = 10**15
"""The most of summed throttle or request times: 30,000 years."""
_BYTES_PER_MS: Final = 125_000_000
"""A terabit per second."""
_TIMES_PER_MS: Final = 1_000_000
SLACK_MS: Final = 60_000
"""An interval may count a minute more than its length: sizes counted at once, and counts that a stall delayed."""
MOST_WINDOW_MS: Final = _DAY_MS
MOST_LIMIT: Final = 1e32
"""Bytes per second, beyond what a quota file can say."""
LEAST_LIMIT: Final = 1e-3
"""The least limit above 0."""
MOST_NAME_BYTES: Final = 2**18
"""The longest text in rows: a rule of a user and a client-id of 32 KiB each, escaped."""
MOST_LABEL_BYTES: Final = 1000
"""The longest text that a document has once."""
MOST_ROWS: Final = 10_000
"""The most rows of a document; those of version 1 have a thousand."""
MOST_DOCUMENT_BYTES: Final = 8 * 2**20


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a document, and what it is worth where a document has none of it, or null in it."""

    name: str
    type: pa.DataType
    missing: int | str | bool | None = 0
    least: int | None = 0
    """Numbers below it make a document unreadable."""
    most: int | None = None
    """Numbers above it do, too; None: what the type holds."""
    per_ms: int = 0
    """The most that each millisecond of an interval (and SLACK_MS more) can have of it; 0: that says nothing."""


def _limit(name: str) -> Column:
    return Column(name, LIMIT, missing=None)


def _rule(name: str) -> Column:
    return Column(name, TEXT, missing=None, least=None)


def _bytes(name: str) -> Column:
    return Column(name, COUNT, per_ms=_BYTES_PER_MS)


def _times(name: str) -> Column:
    return Column(name, COUNT, per_ms=_TIMES_PER_MS)


def _of(kind: QuotaKind) -> tuple[Column, ...]:
    names = kind.row.columns
    return (
        _bytes(names.used) if kind.row.unit is BYTES else _times(names.used),
        _times(names.requests),
        Column(names.throttle_ms, COUNT, most=_MOST_TIMES_MS),
        _times(names.throttled),
        Column(names.muted_ms, COUNT, per_ms=1),
        _limit(names.limit),
        _rule(names.rule),
    )


def _in_shadow(kind: QuotaKind) -> tuple[Column, ...]:
    limit, throttled, throttle_ms, muted_ms = kind.row.shadow_columns
    return (
        _limit(limit),
        _times(throttled),
        Column(throttle_ms, COUNT, most=_MOST_TIMES_MS),
        Column(muted_ms, COUNT, per_ms=1),
    )


def _of_caps(kind: QuotaKind) -> tuple[Column, ...]:
    caps, limits, rule, throttled, throttle_ms, muted_ms = kind.row.cap_columns
    return (
        *(_rule(name) for name in (caps, limits, rule)),
        _times(throttled),
        Column(throttle_ms, COUNT, most=_MOST_TIMES_MS),
        Column(muted_ms, COUNT, per_ms=1),
    )


_OF_CONNECTIONS: Final = QuotaKind.CONNECTION_CREATION_RATE.row.columns

_OPTIONAL: Final = (
    *(column for kind in METERED for column in _in_shadow(kind)),
    *(column for kind in METERED for column in _of_caps(kind)),
    Column("exempt", FLAG, missing=False, least=None),
    Column("ip", TEXT, missing=None, least=None),
    *(_times(_OF_CONNECTIONS.used), _limit(_OF_CONNECTIONS.limit), _rule(_OF_CONNECTIONS.rule)),
    _times(_OF_CONNECTIONS.throttled),
    Column(_OF_CONNECTIONS.throttle_ms, COUNT, most=_MOST_TIMES_MS),
    Column(_OF_CONNECTIONS.muted_ms, COUNT, per_ms=1),
    *(_times("accept_waits"), Column("accept_wait_ms", COUNT, most=_MOST_TIMES_MS)),
)
OPTIONAL: Final = tuple(column.name for column in _OPTIONAL)
"""Columns that few documents have; files have them only where they say anything."""

COLUMNS: Final = (
    Column("listener", TEXT, missing="", least=None),
    Column("broker", SMALL, missing=-1, least=-1),
    Column("user", TEXT, missing=None, least=None),
    Column("client_id", TEXT, missing=None, least=None),
    *(_bytes("bytes_in"), _bytes("bytes_out"), _times("requests")),
    Column("request_time_ms", COUNT, most=_MOST_TIMES_MS),
    Column("connections", COUNT, most=10**8),
    *(_times("connections_opened"), _times("connections_refused")),
    *(column for kind in METERED for column in _of(kind)),
    *_OPTIONAL,
)
"""All columns of ``rows`` in a document."""

FIELDS: Final = (
    Column("cluster", TEXT, missing="", least=None),
    Column("instance", TEXT, missing=None, least=None),
    Column("boot", TEXT, missing=None, least=None),
    Column("seq", COUNT, missing=None, most=2**53),
    Column("interval_ms", COUNT, missing=None, least=1, most=_DAY_MS),
    Column("mode", TEXT, missing="enforce", least=None),
    Column("samples", SMALL, missing=11, least=1, most=1000),
    Column("sample_ms", COUNT, missing=1000, least=1, most=3_600_000),
    Column("controller_samples", SMALL, missing=11, least=1, most=1000),
    Column("controller_sample_ms", COUNT, missing=1000, least=1, most=3_600_000),
    Column("dropped_documents", COUNT, most=2**53),
)
"""What a document says once and each of its rows has, besides TIME_MS; missing None: it must be there."""

TIME_MS: Final = Column("time_ms", COUNT, missing=None, least=_2020_MS)
"""How late it may be, whoever reads it says."""

FILE: Final = pa.schema(
    [("time", TIME), *((field.name, field.type) for field in FIELDS), *((each.name, each.type) for each in COLUMNS)]
)
"""A row of ``usage`` as it is in files: one entity in one interval. ``time`` is where the interval begins."""

ROWS: Final[StructType] = from_arrow_schema(pa.schema([*FILE, ("date", pa.date32()), ("hour", SMALL)]))
"""The same as Spark has it, with ``date`` and ``hour``, in UTC: partitions of the table."""

DOCUMENT_FILE: Final = pa.schema(
    [
        *((name, TEXT) for name in ("cluster", "instance", "boot")),
        *((name, COUNT) for name in ("seq", "begin_ms", "end_ms", "dropped")),
        *((name, COUNT) for name in ("rows", "rows_of_others", "rows_of_nobody")),
        *((name, FLAG) for name in ("late", "is_first")),
    ]
)
"""A row of ``documents`` as it is in files: a document that is stored."""

DOCUMENTS: Final[StructType] = from_arrow_schema(
    pa.schema([*DOCUMENT_FILE, ("date", pa.date32()), ("hour", SMALL), ("batch", TEXT)])
)
"""The schema as Spark has it, with its partitions."""
