"""Sums of each client and day: some rows of each thousand, from which much else is drawn."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.arrays import DAY_MS, summed, times_ms, with_columns
from analysis.metrics.kinds import KINDS, NAMED_BY, counters, units
from analysis.scan import Usage
from analysis.schema import FILE

CLIENT: Final = (*NAMED_BY, *(f"{kind}_rule" for kind in KINDS))
SUMS: Final = (
    *("bytes_in", "bytes_out", "requests", "request_time_ms", "connections_opened", "connections_refused"),
    *(f"{kind}_{what}" for kind in KINDS for what in ("bytes", "throttle_ms", "throttled", "muted_ms")),
)
_APART: Final = (*CLIENT, "date")


def _of_counter(kind: str) -> list[str]:
    return [f"{kind}_{name}" for name in ("counter", "unit_user", "unit_client_id")]


_COUNTED: Final = [name for kind in KINDS for name in _of_counter(kind)]
_SCHEMA: Final = pa.schema(
    [
        *(FILE.field(name) for name in CLIENT),
        ("date", pa.date32()),
        *((name, pa.int64() if name.endswith("counter") else pa.string()) for name in _COUNTED),
        *((name, pa.int64()) for name in SUMS),
    ]
)


def clients(usage: Usage) -> DataFrame:
    """Return CLIENT, ``date``, SUMS, and of each kind the ``…_counter`` with ``…_unit_user`` and ``…_unit_client_id``.

    Every byte of the rows is in one of them. A client whose rule changed has a row for each.
    """
    parts = usage.scan(("time", *CLIENT, *SUMS), _clients, _SCHEMA)
    return parts.groupBy(*_APART, *_COUNTED).agg(*(F.sum(name).alias(name) for name in SUMS))


def _clients(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    for sums in summed(map(_dated, tables), _APART, dict.fromkeys(SUMS, "sum")):
        found = sums
        for kind, counter in counters(sums).items():
            columns = (counter, *units(sums, kind))
            found = with_columns(found, dict(zip(_of_counter(kind), columns, strict=True)))
        yield found


def _dated(table: pa.Table) -> pa.Table:
    return with_columns(table, {"date": (times_ms(table) // DAY_MS).astype(np.int32)})
