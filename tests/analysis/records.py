"""Usage records made by hand: documents as the proxy writes them, and rows as the table keeps them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from analysis.kernel.units import read_rule
from analysis.schema import COLUMNS, FIGURES, NAMES
from quotas.kinds import CLIENT_KINDS
from quotas.policy import Terms
from quotas.precedence import counter_under

BEGIN: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)
BEGIN_MS: Final = int(BEGIN.timestamp() * 1000)

Row = Mapping[str, Any]
Document = dict[str, Any]
STORED: Final = ["time", "interval_ms", *(column.name for column in (*NAMES, *FIGURES))]
"""What is stored of a row, with its names."""


def row(user: str | None = "alice", client_id: str | None = "app", **columns: Any) -> dict[str, Any]:
    """A row with every column of version 1: on broker 1, without traffic and without limits where none are given."""
    unknown = columns.keys() - {column.name for column in COLUMNS}
    assert not unknown, unknown
    plain: dict[str, Any] = {column.name: column.missing for column in COLUMNS}
    return {
        **plain,
        "listener": "PLAIN",
        "broker": 1,
        **with_counters({"user": user, "client_id": client_id, **columns}),
    }


def with_counters(row: Row) -> dict[str, Any]:
    """The row with the names of its counters, which follow from its rules."""
    found = dict(row)
    for columns in (kind.row.columns for kind in CLIENT_KINDS):
        if (rule := row.get(columns.rule)) is not None:
            found[columns.counter_user], found[columns.counter_client_id] = counter_names(row, rule)
    return found


def counter_names(row: Row, rule: str) -> tuple[str | None, str | None]:
    """The user and client-id of a counter of a row; None: they play no role."""
    entity, shared = read_rule(rule)
    terms = Terms(shared=shared)
    names = counter_under((entity.user, entity.client_id), row["user"], row["client_id"], terms)
    return names.user or None, names.client_id or None


def caps_of(row: Row, limits: Mapping[str, float]) -> str:
    """The caps of a row, by rule, as it says them."""
    named = [(rule, limit, *counter_names(row, rule)) for rule, limit in limits.items()]
    return json.dumps([dict(zip(("rule", "limit", "user", "client_id"), each, strict=True)) for each in named])


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
        "owned": 0,
        "rows": {column.name: [row[column.name] for row in rows] for column in COLUMNS},
        **fields,
    }


def stored(documents: Iterable[Document]) -> list[dict[str, Any]]:
    """The rows that are stored of these documents, with their names."""
    return [_stored(each, number) for each in documents for number in range(len(each["rows"]["listener"]))]


def in_order(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Rows by interval, document and client: no table keeps an order. Of each, what is in files."""
    known = [{name: each[name] for name in STORED} for each in rows]
    return sorted(known, key=lambda each: (each["time"], each["instance"], each["user"] or "", each["client_id"] or ""))


def write_jsonl(path: Path, documents: Iterable[Document | str]) -> Path:
    """A file of usage records; a string is a line as it stands."""
    lines = [each if isinstance(each, str) else json.dumps(each) for each in documents]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def _stored(each: Document, number: int) -> dict[str, Any]:
    time = datetime.fromtimestamp(each["time_ms"] / 1000, UTC)
    fields = {name: each[name] for name in STORED if name in each}
    columns = {name: values[number] for name, values in each["rows"].items()}
    return {**fields, **columns, "time": time, "date": time.date(), "hour": time.hour}
