"""Gold made by hand, without Spark: rows of some tables for some hours. ``test_tables`` compares its columns."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

Row = dict[str, Any]
Tables = Mapping[str, Sequence[Row]]
HOUR: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR_MS: Final = int(HOUR.timestamp() * 1000)
SCRIPT: Final = "<script>alert(1)</script>"
NAMES: Final = (
    ("alice", "orders-service"),
    ("bob", SCRIPT),
    ("CN=payments.internal.example.com,OU=Platform Engineering,O=Example,C=DE", "payments-reconciliation-worker-7f9c"),
    ("carol", ""),
    ("\u202eevil\"'&amp;{{ 7 * 7 }}", "a\nb"),
    ("=cmd|' /C calc'!A0", "x"),
)
_N, _T, _I, _B, _F = pa.int64(), pa.string(), pa.int32(), pa.bool_(), pa.float64()
_WHO: Final = {"cluster": _T, "instance": _T, "broker": _I, "listener": _T, "user": _T, "client_id": _T, "ip": _T}
_MOVED: Final = {"bytes_in": _N, "bytes_out": _N, "requests": _N}
_HELD: Final = {"throttled": _N, "throttle_ms": _N, "muted_ms": _N}
_CLIENT: Final = pa.struct([("user", _T), ("client_id", _T)])
SCHEMAS: Final[Mapping[str, Mapping[str, pa.DataType]]] = {
    "client": {
        **_WHO,
        "mode": _T,
        "exempt": _B,
        "interval_ms": _N,
        "window_ms": _N,
        "rows": _N,
        "active_ms": _N,
        **_MOVED,
        "request_time_ms": _N,
        "connections_opened": _N,
        "connections_refused": _N,
        "accept_waits": _N,
        "accept_wait_ms": _N,
        "connections": _N,
        "begin_ms": _N,
        "end_ms": _N,
    },
    "charged": {
        **_WHO,
        "mode": _T,
        "exempt": _B,
        "kind": _T,
        "role": _T,
        "rule": _T,
        "counter": _N,
        "used": _N,
        "requests": _N,
        **_HELD,
        "least_limit": _F,
        "most_limit": _F,
        "per_used": _F,
    },
    "counters": {
        "counter": _N,
        "kind": _T,
        "role": _T,
        "cluster": _T,
        "instance": _T,
        "broker": _I,
        "rule": _T,
        "unit_user": _T,
        "unit_client_id": _T,
        "per_used": _F,
        "window_ms": _N,
        "interval_ms": _N,
        "first_client": _CLIENT,
        "last_client": _CLIENT,
        "is_shared": _B,
    },
    "readings": {
        "counter": _N,
        "values": pa.list_(pa.float32()),
        "seconds": pa.list_(_I),
        "over_s": _N,
        "busy_s": _N,
        "used_s": _N,
        "max": _F,
        "most_window": _F,
        "limit": _F,
        "last_ms": _N,
    },
    "muted": {
        **_WHO,
        "mode": _T,
        "kind": _T,
        "role": _T,
        "counter": _N,
        "rule": _T,
        "begin_ms": _N,
        "end_ms": _N,
        "used": _N,
        "bytes": _N,
        **_HELD,
        "limit": _F,
    },
    "moments": {
        "cluster": _T,
        "broker": _I,
        "user": _T,
        "client_id": _T,
        "is_rest": _B,
        "at_s": _N,
        **_MOVED,
        "request_time_ms": _N,
        "muted_ms": _N,
    },
    "shared": {
        "counter": _N,
        "kind": _T,
        "user": _T,
        "client_id": _T,
        "is_rest": _B,
        "clients": _N,
        "victim_user": _T,
        "victim_client_id": _T,
        "caused_ms": _F,
    },
    "users": {"minute": _N, "cluster": _T, "user": _T, "exempt": _B, **_MOVED, "begin_ms": _N, "end_ms": _N},
    "documents": {
        "cluster": _T,
        "instance": _T,
        "boot": _T,
        "seq": _N,
        "begin_ms": _N,
        "end_ms": _N,
        "dropped": _N,
        "rows": _N,
        "rows_of_others": _N,
        "rows_of_nobody": _N,
        "late": _B,
        "is_first": _B,
    },
}
_PLAIN: Final = {
    "cluster": "demo",
    "instance": "edge-1",
    "broker": 1,
    "listener": "PLAIN",
    "user": "alice",
    "client_id": "app",
    "ip": None,
    "mode": "enforce",
    "kind": "produce",
    "role": "quota",
    "rule": "user=alice",
    "counter": 1,
    "interval_ms": 1000,
    "window_ms": 11_000,
    "limit": 1e6,
    "least_limit": 1e6,
    "most_limit": 1e6,
    "per_used": 1.0,
    "boot": "boot-1",
    "unit_user": "alice",
    "unit_client_id": None,
    "bytes": None,
    "max": None,
}


def write(warehouse: Path, hours: Mapping[datetime, Tables], *, stale: Sequence[datetime] = ()) -> None:
    """Write the gold of some hours, and of ``stale`` ones also a batch of rows that is not in it.

    What a row does not say is that of alice's app on broker 1, and nothing used.
    """
    for hour, tables in hours.items():
        place = f"date={hour:%Y-%m-%d}"
        for name, schema in SCHEMAS.items():
            rows = [
                {column: each.get(column, _missing(column, kind)) for column, kind in schema.items()}
                for each in tables.get(name, ())
            ]
            folder = warehouse / "gold" / f"{name}_hour" / place / f"hour={hour:%H}" / "made=m"
            folder.mkdir(parents=True)
            pq.write_table(pa.Table.from_pylist(rows, pa.schema(list(schema.items()))), folder / "part-0.parquet")
        for batch in ["b-0", *(["b-1"] if hour in stale else [])]:
            (warehouse / "usage" / place / f"hour={hour.hour}" / f"batch={batch}").mkdir(parents=True)
    made: dict[str, dict[str, Any]] = {}
    for hour in hours:
        made.setdefault(f"date={hour:%Y-%m-%d}", {})[f"{hour:%H}"] = {"made": "m", "sources": ["b-0"]}
    (warehouse / "gold" / "made").mkdir(parents=True, exist_ok=True)
    for date, batches in made.items():
        said = {"hours": batches, "day": None}
        (warehouse / "gold" / "made" / f"{date}.json").write_text(json.dumps(said), encoding="utf-8")


def _missing(column: str, kind: pa.DataType) -> Any:
    if column in _PLAIN:
        return _PLAIN[column]
    if pa.types.is_list(kind):
        return []
    return None if pa.types.is_struct(kind) or pa.types.is_string(kind) else kind.to_pandas_dtype()(0)


def client(hour: datetime = HOUR, **columns: Any) -> Row:
    """A client for a whole hour."""
    begin_ms = int(hour.timestamp() * 1000)
    return {"begin_ms": begin_ms, "end_ms": begin_ms + 3_600_000, "rows": 3600, **columns}


def documents(hour: datetime, seqs: Sequence[int], **columns: Any) -> list[Row]:
    """A document every second of an hour, from the first that was stored of its boot on."""
    begin_ms = int(hour.timestamp() * 1000)
    times = ({"begin_ms": begin_ms + 1000 * n, "end_ms": begin_ms + 1000 * n + 1000} for n in range(len(seqs)))
    return [
        {"seq": seq, "rows": 1, "is_first": seq == seqs[0], **time, **columns}
        for seq, time in zip(seqs, times, strict=True)
    ]


def quiet() -> dict[str, list[Row]]:
    """An hour in which nobody was held."""
    return {"client": [client(bytes_in=1)], "documents": documents(HOUR, range(3))}


def busy() -> dict[str, list[Row]]:
    """An hour with all sections of a page, and names that are hostile to it."""
    found: dict[str, list[Row]] = {name: [] for name in SCHEMAS}
    for number, (user, client_id) in enumerate(NAMES * 3):
        who: Row = {"user": user, "client_id": client_id, "broker": number, "rule": f"user={user}", "counter": number}
        sums: Row = {"bytes_in": 10**9 * (number + 1), "bytes_out": 10**8, "requests": 1000}
        found["client"].append(client(**who, **sums, connections_refused=number, mode="enforce"))
        held = {"throttled": 9, "throttle_ms": 900, "muted_ms": 1000 * (number + 1)}
        found["charged"].append({**who, "used": 10**9, "requests": 1000, **held})
        found["counters"].append({**who, "unit_user": user, "is_shared": True, "interval_ms": 1000})
        found["readings"].append(
            {**who, "values": [0.5, 1.3], "seconds": [100, 50 * number], "over_s": 50 * number,
             "busy_s": 100 + 50 * number, "used_s": 9, "max": 1.3, "most_window": 1.0, "last_ms": HOUR_MS}
        )  # fmt: skip
        begin_ms = HOUR_MS + 60_000 * number
        found["muted"].append({**who, **held, "begin_ms": begin_ms, "end_ms": begin_ms + 30_000, "bytes": 5})
        found["moments"].append({**who, **sums, "at_s": begin_ms // 1000})
        found["shared"].append({**who, "victim_user": "v", "victim_client_id": SCRIPT, "caused_ms": 5.0})
        found["users"].append({**who, **sums})
    found["charged"].append(
        {
            "kind": "connection",
            "user": None,
            "client_id": None,
            "ip": SCRIPT,
            "rule": "ip=<default>",
            "used": 4,
            "throttled": 1,
        }
    )
    found["documents"] = documents(HOUR, [0, 1, 5], instance=SCRIPT, dropped=1)
    return found


def later(hours: float) -> datetime:
    return HOUR + timedelta(hours=hours)
