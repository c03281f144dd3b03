"""Sums of each client and day: some rows of each thousand, from which much else is drawn."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from analysis.metrics.counters import KINDS, NAMED_BY, USED, counter_by_kind, units
from analysis.table import hashes
from analysis.table.arrays import DAY_MS, Ints, added, folded, ints, summed, times_ms, with_columns
from analysis.table.exchange import exchange, packed, tasks_for
from analysis.table.parts import Parts
from analysis.table.reading import Keeping, adding
from analysis.table.scan import OfDays, UsageRows
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
_ROWS_OF_ONE: Final = 10
"""At least, in a period that is worth several tasks: rows that are summed to one before they travel."""


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
    """Return CLIENT, ``date``, SUMS, ACTIVE, and of each kind ``…_counter``, ``…_unit_user`` and ``…_unit_client_id``.

    Every byte of the rows is in one of them. A client whose rule changed has a row for each. ``rows`` is how many there
    are of usage, about.
    """
    tasks = tasks_for(rows // _ROWS_OF_ONE, usage.spark.sparkContext.defaultParallelism)
    sent = _Sent(tasks)
    return exchange(usage, _READ, sent, tasks, OfDays(KEPT, sent.packed)).parts(_received, _SCHEMA)


def keeping() -> Keeping:
    """Return what is kept of rows as KEPT."""
    return Keeping(KEPT, _READ, _parts, _KEPT, adding(_APART, _HOW), _of_client)


@dataclass(frozen=True, slots=True)
class _Sent:
    """Sends the sums of a client to one task."""

    tasks: int

    def __call__(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        return self.packed(folded(_parts(tables), adding(_APART, _HOW)))

    def packed(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for sums in tables:
            yield from packed(sums, _of_client(sums) % self.tasks)


def _of_client(sums: pa.Table) -> Ints:
    return hashes.of_columns(sums, ("user", "client_id"))


def _parts(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    return (added(_dated(table), _APART, _HOW) for table in tables)


def _received(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    for sums in summed(tables, _APART, _HOW):
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
