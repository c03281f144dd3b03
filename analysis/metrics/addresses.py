"""Who connected, by address: how often, and how often of that it was refused for its rate."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.metrics.sums import total
from analysis.table.arrays import added
from analysis.table.scan import UsageRows
from analysis.table.schema import COUNT, FILE, LIMIT
from quotas.kinds import QuotaKind

_OF_KIND: Final = QuotaKind.CONNECTION_CREATION_RATE.row.columns
WHO: Final = ("cluster", "instance", "listener", "ip", "exempt", "mode", _OF_KIND.rule)
SUMS: Final = (_OF_KIND.used, _OF_KIND.throttled, _OF_KIND.muted_ms, "accept_waits", "accept_wait_ms")
_HOW: Final = {**dict.fromkeys(SUMS, "sum"), _OF_KIND.limit: "min"}
_SCHEMA: Final = pa.schema(
    [*(FILE.field(name) for name in WHO), *((name, COUNT) for name in SUMS), (_OF_KIND.limit, LIMIT)]
)


def addresses(usage: UsageRows) -> DataFrame:
    """Return WHO, SUMS and the lowest limit: of each address, and without one (null) the waits of each listener.

    The address ``other`` is all that records do not tell apart. In mode ``shadow`` nobody was refused in truth.
    """
    found = usage.scan((*WHO, *SUMS, _OF_KIND.limit), _summed, _SCHEMA)
    sums = (total(name).alias(name) for name in SUMS)
    return found.groupBy(*WHO).agg(*sums, F.min(_OF_KIND.limit).alias(_OF_KIND.limit))


def _summed(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    for table in tables:
        chosen = pc.or_(table["ip"].is_valid(), pc.greater(table["accept_waits"], 0))
        found = table.filter(chosen)
        if len(found):
            yield added(found.combine_chunks(), WHO, _HOW)
