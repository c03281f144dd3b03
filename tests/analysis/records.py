"""Usage records made by hand: documents as the proxy writes them, and rows as the table keeps them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from analysis.metrics import headroom, muted
from analysis.metrics.counters import KINDS
from analysis.metrics.period import Period
from analysis.table import reading
from analysis.table.exchange import collected
from analysis.table.parquet import decode, encode, joined
from analysis.table.parts import Parts
from analysis.table.reading import Making
from analysis.table.scan import FILES, UsageRows
from analysis.table.schema import COLUMNS, FILE, ROWS

BEGIN: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)
BEGIN_MS: Final = int(BEGIN.timestamp() * 1000)

Row = Mapping[str, Any]
Document = dict[str, Any]


def row(user: str | None = "alice", client_id: str | None = "app", **columns: Any) -> dict[str, Any]:
    """A row with every column of version 1: on broker 1, without traffic and without limits where none are given."""
    unknown = columns.keys() - {column.name for column in COLUMNS}
    assert not unknown, unknown
    plain: dict[str, Any] = {column.name: column.missing for column in COLUMNS}
    return {**plain, "listener": "PLAIN", "broker": 1, "user": user, "client_id": client_id, **columns}


def document(seq: int, rows: Sequence[Row], *, second: float | None = None, **fields: Any) -> Document:
    """A document of ``edge-1``, for the interval that begins ``second`` (without it ``seq``) seconds after BEGIN."""
    begins_s = seq if second is None else second
    return {
        "v": 1,
        "cluster": "demo",
        "instance": "edge-1",
        "boot": "boot-1",
        "seq": seq,
        "time_ms": BEGIN_MS + int(begins_s * 1000),
        "interval_ms": 1000,
        "mode": "enforce",
        "samples": 11,
        "sample_ms": 1000,
        "controller_samples": 11,
        "controller_sample_ms": 1000,
        "dropped_documents": 0,
        "dropped_rows": 0,
        "rows": {column.name: [row[column.name] for row in rows] for column in COLUMNS},
        **fields,
    }


def stored(documents: Iterable[Document]) -> list[dict[str, Any]]:
    """The rows of a table that keeps these documents, as ROWS has them."""
    return [_stored(each, number) for each in documents for number in range(len(each["rows"]["listener"]))]


def usage_frame(spark: SparkSession, documents: Iterable[Document]) -> DataFrame:
    """The same as Spark reads it from the table."""
    return spark.createDataFrame([tuple(each[name] for name in ROWS.names) for each in stored(documents)], ROWS)


def usage(spark: SparkSession, *files: Iterable[Document]) -> UsageRows:
    """The same in files: what ``warehouse.usage`` returns."""
    return UsageRows(spark.createDataFrame([("memory", file_of(documents)) for documents in files], FILES))


def framed(table: Parts | pa.Table) -> DataFrame:
    """A table that was made of rows, for Spark to ask."""
    spark = SparkSession.getActiveSession()
    assert spark is not None
    return spark.createDataFrame(table.whole() if isinstance(table, Parts) else table)


def kept(frame: DataFrame) -> Parts:
    """A table that Spark made, as those are that were made of rows."""
    return Parts.of(frame.toArrow())


def made(usage: UsageRows, making: Making, lead_ms: int = 0) -> Parts:
    """A table that tasks make of rows, by itself."""
    return reading.tables(usage, [making], 1000, lead_ms)[making.name]


def muted_of(usage: UsageRows, capped: Sequence[str] = KINDS) -> Parts:
    """Who was muted, and when."""
    return made(usage, muted.making(capped))


def headroom_of(usage: UsageRows, period: Period) -> Parts:
    """How close counters run to their limits, on each date and in all."""
    return made(usage, headroom.making(usage, period), period.longest_window_ms)


def file_of(documents: Iterable[Document]) -> bytes:
    """The same in a file of the table."""
    return encode(pa.Table.from_pylist(stored(documents), FILE))


def tables(columns: Sequence[str], *files: Iterable[Document], rows: int = 1_000_000) -> list[pa.Table]:
    """The same as a worker is given them: some columns, so many rows at a time."""
    contents = map(file_of, files)
    whole = joined([table for content in contents for table in decode(pa.py_buffer(content), columns)])
    return [joined([whole.slice(at, rows)]) for at in range(0, len(whole), rows)]


def rows_of(usage: UsageRows) -> list[dict[str, Any]]:
    """All columns of all rows, as FILE has them, in the order of ``in_order``."""
    return in_order(collected(usage, FILE.names, iter, FILE).to_pylist())


def in_order(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Rows by interval, document and client: no table keeps an order. Of each, what is in files."""
    known = [{name: each[name] for name in FILE.names} for each in rows]
    return sorted(known, key=lambda each: (each["time"], each["instance"], each["seq"], each["user"] or ""))


def write_jsonl(path: Path, documents: Iterable[Document | str]) -> Path:
    """A file of usage records; a string is a line as it stands."""
    lines = [each if isinstance(each, str) else json.dumps(each) for each in documents]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def _stored(each: Document, number: int) -> dict[str, Any]:
    time = datetime.fromtimestamp(each["time_ms"] / 1000, UTC)
    fields = {name: each[name] for name in ROWS.names if name in each}
    columns = {name: values[number] for name, values in each["rows"].items()}
    return {**fields, **columns, "time": time, "date": time.date(), "hour": time.hour}
