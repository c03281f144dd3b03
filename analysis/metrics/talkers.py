"""Who moves how much: bytes in and out, and requests, of each client over all brokers."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.metrics.steps import SUMS

CLIENT: Final = ("cluster", "user", "client_id")
"""Of refused connections the names are null: nobody has said yet who it is."""


def talkers(steps: DataFrame) -> DataFrame:
    """Return CLIENT and the sums of ``steps``: every byte of the rows is in one of them."""
    return steps.groupBy(*CLIENT).agg(*(F.sum(name).alias(name) for name in SUMS))


def over_time(steps: DataFrame, clients: DataFrame) -> DataFrame:
    """Return ``step``, CLIENT, ``bytes_in`` and ``bytes_out`` of ``clients``; all others stand as one, names null.

    ``clients`` is a few (CLIENT), with ``named`` true.
    """
    joined = steps.join(F.broadcast(clients), [steps[name].eqNullSafe(clients[name]) for name in CLIENT], "left")
    names = [F.when(clients["named"], steps[name]).alias(name) for name in CLIENT]
    sums = (F.sum(steps[name]).alias(name) for name in ("bytes_in", "bytes_out"))
    return joined.groupBy(steps["step"], F.coalesce(clients["named"], F.lit(False)).alias("named"), *names).agg(*sums)
