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
    wanted = clients.select(*(F.col(name).alias(f"wanted_{name}") for name in CLIENT), "named")
    same = [F.col(name).eqNullSafe(F.col(f"wanted_{name}")) for name in CLIENT]
    joined = steps.join(F.broadcast(wanted), same, "left")
    names = (F.when(F.col("named"), F.col(name)).alias(name) for name in CLIENT)
    sums = (F.sum(name).alias(name) for name in ("bytes_in", "bytes_out"))
    return joined.groupBy("step", F.coalesce("named", F.lit(False)).alias("named"), *names).agg(*sums)
