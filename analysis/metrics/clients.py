"""Sums of each client and day: some rows of each thousand, from which much else is drawn."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from analysis.metrics.counters import KINDS, NAMED_BY, USED, counter_by_kind, units
from analysis.table import hashes
from analysis.table.arrays import DAY_MS, Ints, added, ints, times_ms, with_columns
from analysis.table.parts import Parts
from analysis.table.reading import Keeping, Making, adding, tables
from analysis.table.scan import UsageRows
from analysis.table.schema import FILE

CLIENT: Final = (*NAMED_BY, *(f"{kind}_rule" for kind in KINDS))
_THROTTLES: Final = ("throttle_ms", "throttled", "muted_ms")
SUMS: Final = (
    *("bytes_in", "bytes_out", "requests", "request_time_ms", "connections_opened", "connections_refused"),
    *(name for kind in KINDS for name in (USED[kind], *(f"{kind}_{each}" for each in _THROTTLES))),
)
KEPT: Final = "clients"
ACTIVE: Final = "active_ms"
"""How long a client was in records: the sum of the intervals of its rows."""
_READ: Final = ("time", "interval_ms", *CLIENT, *SUMS)
_APART: Final = (*CLIENT, "date")
_HOW: Final = dict.fromkeys((*SUMS, ACTIVE), "sum")


def _of_counter(kind: str) -> list[str]:
    return [f"{kind}_{name}" for name in ("counter", "unit_user", "unit_client_id")]


_COUNTED: Final = [name for kind in KINDS for name in _of_counter(kind)]
_KEPT: Final = pa.schema(
    [*(FILE.field(name) for name in CLIENT), ("date", pa.date32()), *((name, pa.int64()) for name in _HOW)]
)
_SCHEMA: Final = pa.schema(
    [
        *(FILE.field(name) for name in CLIENT),
        ("date", pa.date32()),
        *((name, pa.int64() if name.endswith("counter") else pa.string()) for name in _COUNTED),
        *((name, pa.int64()) for name in _HOW),
    ]
)


def clients(usage: UsageRows, rows: int) -> Parts:
    """Return what ``making`` says, by itself; ``rows`` is how many there are of usage, about."""
    return tables(usage, [making()], rows)[KEPT]


def making() -> Making:
    """Return CLIENT, ``date``, SUMS, ACTIVE, and of each kind ``…_counter``, ``…_unit_user`` and ``…_unit_client_id``.

    Every byte of the rows is in one of them. A client whose rule changed has a row for each.
    """
    return Making(KEPT, keeping(), _counted, _SCHEMA)


def keeping() -> Keeping:
    """Return what is kept of rows as KEPT."""
    return Keeping(KEPT, _READ, _parts, _KEPT, adding(_APART, _HOW), _of_client)


def _of_client(sums: pa.Table) -> Ints:
    return hashes.of_columns(sums, ("user", "client_id"))


def _parts(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    return (added(_dated(table), _APART, _HOW) for table in tables)


def _counted(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    for sums in tables:
        found = sums
        for kind, counter in counter_by_kind(sums).items():
            columns = (counter, *units(sums, kind))
            found = with_columns(found, dict(zip(_of_counter(kind), columns, strict=True)))
        yield found


def _dated(table: pa.Table) -> pa.Table:
    return with_columns(
        table,
        {
            "date": pa.array((times_ms(table) // DAY_MS).astype(np.int32), pa.date32()),
            ACTIVE: ints(table, "interval_ms"),
        },
    )
