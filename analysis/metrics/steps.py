"""Sums of each client and step of time: a few rows of each thousand, from which most else is drawn."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.metrics.kinds import KINDS
from analysis.metrics.period import step_column

CLIENT: Final = ("cluster", "instance", "broker", "user", "client_id", "produce_rule", "fetch_rule")
SUMS: Final = (
    *("bytes_in", "bytes_out", "requests", "request_time_ms", "connections_opened", "connections_refused"),
    *(f"{kind}_{what}" for kind in KINDS for what in ("bytes", "throttle_ms", "throttled", "muted_ms")),
)


def steps(rows: DataFrame, step_s: int) -> DataFrame:
    """Return CLIENT, ``step`` (a timestamp) and SUMS: every byte of the rows is in one of them.

    A client whose rule changed within a step has a row for each.
    """
    return rows.groupBy(*CLIENT, step_column(step_s)).agg(*(F.sum(name).alias(name) for name in SUMS))
