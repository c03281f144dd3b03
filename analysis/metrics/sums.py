"""Sums that do not overflow, whatever records say: they stop at MOST, an exbibyte, which no total comes near."""

from pyspark.sql import Column, WindowSpec
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.table.arrays import MOST_SUM


def total(what: Column | str, over: WindowSpec | None = None) -> Column:
    """Return the sum of whole numbers, none below 0: at most MOST_SUM, where ``sum`` would end the job."""
    parts = (F.try_sum(what), F.count(what))
    summed, count = parts if over is None else (part.over(over) for part in parts)
    return F.when(count > 0, F.least(F.coalesce(summed, F.lit(MOST_SUM)), F.lit(MOST_SUM)))
