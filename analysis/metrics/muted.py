"""Intervals in which somebody was muted: the few rows that say who was throttled, and when."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from analysis.metrics.counters import KINDS
from analysis.table.arrays import ints, times_ms
from analysis.table.scan import UsageRows
from analysis.table.schema import FILE

_SAME: Final = ("cluster", "instance", "broker", "user", "client_id", "mode")
_OF_KIND: Final = ("rule", "muted_ms", "throttled", "throttle_ms", "bytes", "limit")
_SCHEMA: Final = pa.schema(
    [
        *(FILE.field(name) for name in _SAME),
        *(("kind", pa.string()), ("begin_ms", pa.int64()), ("end_ms", pa.int64())),
        *((name, FILE.field(f"produce_{name}").type) for name in _OF_KIND),
    ]
)
_READ: Final = ("time", "interval_ms", *_SAME, *(f"{kind}_{name}" for kind in KINDS for name in _OF_KIND))


def muted(usage: UsageRows) -> DataFrame:
    """Return a row for each interval, client and ``kind`` with any ``muted_ms``: as recorded, from ``begin_ms`` on.

    In mode ``shadow`` they would have been muted.
    """
    return usage.scan(_READ, _muted, _SCHEMA)


def _muted(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    for table in tables:
        for kind in KINDS:
            found = table.filter(pc.greater(table[f"{kind}_muted_ms"], 0))
            begin_ms = times_ms(found)
            yield pa.table(
                {
                    **{name: found[name] for name in _SAME},
                    "kind": pa.repeat(kind, found.num_rows),
                    "begin_ms": begin_ms,
                    "end_ms": begin_ms + ints(found, "interval_ms"),
                    **{name: found[f"{kind}_{name}"] for name in _OF_KIND},
                }
            )
