"""Who connected, by address: how often, and how often of that it was refused for its rate."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.metrics.counters import counter_of_address
from analysis.table.arrays import Bools, is_one_of, with_columns
from analysis.table.parquet import plain
from analysis.table.reading import Keeping, Making, adding
from analysis.table.schema import COUNT, FILE, LIMIT
from quotas.connections import OTHERS
from quotas.kinds import QuotaKind

KEPT: Final = "addresses"
_OF_KIND: Final = QuotaKind.CONNECTION_CREATION_RATE.row.columns
_READ: Final = ("cluster", "instance", "listener", "ip", "exempt", "mode", _OF_KIND.rule)
WHO: Final = (*_READ, "counter")
SUMS: Final = (_OF_KIND.used, _OF_KIND.throttled, _OF_KIND.muted_ms, "accept_waits", "accept_wait_ms")
_HOW: Final = {**dict.fromkeys(SUMS, "sum"), _OF_KIND.limit: "min"}
_SCHEMA: Final = pa.schema(
    [
        *(FILE.field(name) for name in _READ),
        ("counter", COUNT),
        *((name, COUNT) for name in SUMS),
        (_OF_KIND.limit, LIMIT),
    ]
)


def making() -> Making:
    """Return WHO, SUMS and the lowest limit: of each address, and without one (null) the waits of each listener.

    ``counter`` is what the address is counted by, null where no rule is for it, and for ``other``.

    The address ``other`` is all that records do not tell apart. In mode ``shadow`` nobody was refused in truth.
    """
    return Making(KEPT, keeping(), iter, _SCHEMA)


def keeping() -> Keeping:
    """Return what is kept of rows as KEPT."""
    return Keeping(KEPT, (*_READ, *SUMS, _OF_KIND.limit), _parts, _SCHEMA, adding(WHO, _HOW))


def _parts(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    for table in tables:
        chosen = pc.or_(table["ip"].is_valid(), pc.greater(table["accept_waits"], 0))
        found = table.filter(chosen)
        if len(found):
            found = found.combine_chunks()
            counter = pa.array(counter_of_address(found), mask=~is_counted(found))
            yield plain(with_columns(found, {"counter": counter}))


def is_counted(table: pa.Table) -> Bools:
    """Whether each row is of an address with a counter of its own."""
    address = np.asarray(pc.and_(table["ip"].is_valid(), table[_OF_KIND.rule].is_valid()).to_numpy())
    return np.asarray(address & (is_one_of(table["ip"], {OTHERS}) == 0))
