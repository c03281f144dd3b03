"""The schemas of documents (docs/usage-records.md) and of tables, with the bounds of each column."""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from quotas.kinds import BYTES, CLIENT_KINDS, QuotaKind

VERSION: Final = 1
"""The supported ``v`` of documents: it changes when the meaning of a field changes."""

TEXT: Final = pa.string()
COUNT: Final = pa.int64()
SMALL: Final = pa.int32()
LIMIT: Final = pa.float64()
FLAG: Final = pa.bool_()
TIME: Final = pa.timestamp("us", tz="UTC")


# Bounds that no proxy exceeds: a document beyond them is wrong or forged, and is refused.
_DAY_MS: Final = 86_400_000
_2020_MS: Final = 1_577_836_800_000
_MOST_TIMES_MS: Final = 10**15
"""The most of summed throttle or request times: 30,000 years."""
_BYTES_PER_MS: Final = 125_000_000
"""A terabit per second."""
_TIMES_PER_MS: Final = 1_000_000
SLACK_MS: Final = 60_000
"""An interval may count a minute more than its length: large requests count at once, and a stall delays counting."""
MOST_WINDOW_MS: Final = _DAY_MS
MOST_LIMIT: Final = 1e32
"""Bytes per second: more than a quota file can express."""
LEAST_LIMIT: Final = 1e-3
"""The least limit above 0."""
MOST_NAME_BYTES: Final = 2**18
"""The longest text in rows: a rule of a user and a client-id of 32 KiB each, escaped."""
MOST_LABEL_BYTES: Final = 1000
"""The longest text in a document's head."""
MOST_ROWS: Final = 10_000
"""The most rows of a document; those of version 1 have a thousand."""
MOST_DOCUMENT_BYTES: Final = 8 * 2**20


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a document."""

    name: str
    type: pa.DataType
    missing: int | str | bool | None = 0
    """The value of rows without one."""
    least: int | None = 0
    """Documents with smaller numbers are refused."""
    most: int | None = None
    """Documents with larger numbers are refused; None: the type's maximum."""
    per_ms: int = 0
    """The most for each millisecond of an interval (and SLACK_MS more); 0: no such bound."""
    is_name: bool = False
    """Whether it is a name or a setting, which is stored in ``keys``; otherwise a figure of a row."""


def _limit(name: str) -> Column:
    return Column(name, LIMIT, missing=None)


def _text(name: str) -> Column:
    return Column(name, TEXT, missing=None, least=None, is_name=True)


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
        *map(_text, (names.rule, names.counter_user, names.counter_client_id)),
    )


def _throttles(throttled: str, throttle_ms: str, muted_ms: str) -> tuple[Column, ...]:
    return _times(throttled), Column(throttle_ms, COUNT, most=_MOST_TIMES_MS), Column(muted_ms, COUNT, per_ms=1)


def _in_shadow(kind: QuotaKind) -> tuple[Column, ...]:
    limit, *throttles = kind.row.shadow_columns
    return (_limit(limit), *_throttles(*throttles))


def _of_caps(kind: QuotaKind) -> tuple[Column, ...]:
    caps, rule, *throttles = kind.row.cap_columns
    return (_text(caps), _text(rule), *_throttles(*throttles))


_OF_CONNECTIONS: Final = QuotaKind.CONNECTION_CREATION_RATE.row.columns

OPTIONAL: Final = (
    *(column for kind in CLIENT_KINDS if kind.row.unit is not BYTES for column in _of(kind)),
    *(column for kind in CLIENT_KINDS for column in _in_shadow(kind)),
    *(column for kind in CLIENT_KINDS for column in _of_caps(kind)),
    Column("exempt", FLAG, missing=False, least=None, is_name=True),
    _text("ip"),
    *(_times(_OF_CONNECTIONS.used), _limit(_OF_CONNECTIONS.limit), _text(_OF_CONNECTIONS.rule)),
    *_throttles(_OF_CONNECTIONS.throttled, _OF_CONNECTIONS.throttle_ms, _OF_CONNECTIONS.muted_ms),
    *(_times("accept_waits"), Column("accept_wait_ms", COUNT, most=_MOST_TIMES_MS)),
)
"""Columns that many files lack: a file has them only if a row has a value."""

COLUMNS: Final = (
    Column("listener", TEXT, missing="", least=None, is_name=True),
    Column("broker", SMALL, missing=-1, least=-1, is_name=True),
    *map(_text, ("user", "client_id")),
    *(_bytes("bytes_in"), _bytes("bytes_out"), _times("requests")),
    Column("request_time_ms", COUNT, most=_MOST_TIMES_MS),
    Column("connections", COUNT, most=10**8),
    *(_times("connections_opened"), _times("connections_refused")),
    *(column for kind in CLIENT_KINDS if kind.row.unit is BYTES for column in _of(kind)),
    *OPTIONAL,
)
"""The columns of ``rows`` in a document."""

FIELDS: Final = (
    Column("cluster", TEXT, missing="", least=None, is_name=True),
    Column("instance", TEXT, missing=None, least=None, is_name=True),
    Column("boot", TEXT, missing=None, least=None),
    Column("seq", COUNT, missing=None, most=2**53),
    Column("interval_ms", COUNT, missing=None, least=1, most=_DAY_MS),
    Column("mode", TEXT, missing="enforce", least=None, is_name=True),
    Column("samples", SMALL, missing=11, least=1, most=1000, is_name=True),
    Column("sample_ms", COUNT, missing=1000, least=1, most=3_600_000, is_name=True),
    Column("controller_samples", SMALL, missing=11, least=1, most=1000, is_name=True),
    Column("controller_sample_ms", COUNT, missing=1000, least=1, most=3_600_000, is_name=True),
    Column("dropped_documents", COUNT, most=2**53),
    Column("owned", SMALL, most=1, is_name=True),
)
"""The head of a document, without TIME_MS, which is repeated in its rows. Fields with ``missing`` None are required."""

TIME_MS: Final = Column("time_ms", COUNT, missing=None, least=_2020_MS)
"""Its upper bound depends on the reader's clock (``analysis.ingest.documents``)."""

NAMES: Final = tuple(column for column in (*FIELDS, *COLUMNS) if column.is_name)
FIGURES: Final = tuple(column for column in COLUMNS if not column.is_name)


def _fields(*columns: Column) -> list[tuple[str, pa.DataType]]:
    return [(column.name, column.type) for column in columns]


_PLACE: Final = [("date", pa.date32()), ("hour", SMALL)]

ROW_FILE: Final = pa.schema([("time", TIME), ("key", COUNT), ("interval_ms", COUNT), *_fields(*FIGURES)])
"""A row of ``usage`` in files: one client in one interval, which begins at ``time``. ``key`` leads to its names."""

KEY_FILE: Final = pa.schema([("key", COUNT), ("nominal_ms", COUNT), *_fields(*NAMES)])
"""A row of ``keys`` in files: the names of rows with the same key, and their interval in whole seconds."""

DOCUMENT_FILE: Final = pa.schema(
    [
        *((name, TEXT) for name in ("cluster", "instance", "boot")),
        *((name, COUNT) for name in ("seq", "begin_ms", "end_ms", "dropped")),
        *((name, COUNT) for name in ("rows", "rows_of_others", "rows_of_nobody")),
        *((name, FLAG) for name in ("late", "is_first")),
    ]
)
"""A row of ``documents`` in files: a stored document."""

ROWS: Final[StructType] = from_arrow_schema(pa.schema([*ROW_FILE, *_PLACE]))
"""``usage`` in Spark, with its partitions ``date`` and ``hour`` (UTC)."""
KEYS: Final[StructType] = from_arrow_schema(pa.schema([*KEY_FILE, *_PLACE]))
DOCUMENTS: Final[StructType] = from_arrow_schema(pa.schema([*DOCUMENT_FILE, *_PLACE]))
TABLES: Final = {"usage": ROWS, "keys": KEYS, "documents": DOCUMENTS}
"""The tables that ingestion writes by date, hour and batch."""
