"""The tables of a report: computed one after the other, written as Parquet, and read again from there.

Read again, because each is used more than once, and nothing that is drawn can then differ from what is kept.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.metrics import chargeback, episodes, headroom, neighbours, steps, talkers, trend
from analysis.metrics.headroom import COUNTED
from analysis.metrics.period import Period
from analysis.metrics.rates import Rates


@dataclass(frozen=True, slots=True)
class Choices:
    """What can be chosen about a report."""

    gap_ms: int
    exact: bool
    rates: Rates


@dataclass(frozen=True, slots=True)
class _Source:
    """What a table is made from: the rows, and the tables ``made`` before it."""

    rows: DataFrame
    period: Period
    choices: Choices
    made: dict[str, DataFrame]

    def named(self, counted: DataFrame) -> DataFrame:
        """Return a table of counters with their names."""
        return self.made["counters"].join(counted, [*COUNTED])


_TABLES: Final[Mapping[str, Callable[[_Source], DataFrame]]] = {
    "steps": lambda of: steps.steps(of.rows, of.period.step_s),
    "counters": lambda of: headroom.counters(of.made["steps"]),
    "episodes": lambda of: episodes.episodes(of.rows, of.choices.gap_ms),
    "histogram": lambda of: headroom.histogram(headroom.use(of.rows, of.period), exact=of.choices.exact),
    "headroom": lambda of: of.named(headroom.headroom(of.made["histogram"], F.lit(of.period.intervals))),
    "headroom_days": lambda of: headroom.headroom(of.made["histogram"], headroom.intervals_of_date(of.period), "date"),
    "trend": lambda of: of.named(trend.trend(trend.days(of.made["headroom_days"], of.period))),
    "talkers": lambda of: talkers.talkers(of.made["steps"]),
    "candidates": lambda of: neighbours.candidates(of.made["steps"]),
    "moments": lambda of: neighbours.moments(of.rows, of.made["candidates"]),
    "neighbours": lambda of: neighbours.neighbours(of.made["moments"], of.made["candidates"], of.period),
    "victims": lambda of: neighbours.victims(of.rows, of.made["moments"], of.made["candidates"], of.period),
    "chargeback": lambda of: chargeback.chargeback(of.made["steps"], of.choices.rates, of.period),
}
"""In the order in which they are made. ``candidates`` and ``moments`` are what neighbours are found from."""
NAMES: Final = tuple(_TABLES)


def make(
    rows: DataFrame, period: Period, place: str, choices: Choices, step: Callable[[str], None]
) -> dict[str, DataFrame]:
    """Write all tables into the directory or URI ``place``, over those that are there, and return them by name.

    ``step`` is told the name of each before it is made.
    """
    source = _Source(rows, period, choices, {})
    for name, table in _TABLES.items():
        step(name)
        path = f"{place}/{name}"
        table(source).write.mode("overwrite").parquet(path)
        source.made[name] = rows.sparkSession.read.parquet(path)
    return source.made
