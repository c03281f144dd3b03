"""The tables of a report: made one after the other, of the rows and of those before it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.metrics import (
    addresses,
    caps,
    chargeback,
    clients,
    episodes,
    evidence,
    headroom,
    loss,
    moments,
    muted,
    neighbours,
    rules,
    talkers,
    trend,
)
from analysis.metrics.headroom import COUNTED
from analysis.metrics.period import Period
from analysis.metrics.rates import Rates
from analysis.page import draw
from analysis.table.results import Results
from analysis.table.scan import UsageRows


@dataclass(frozen=True, slots=True)
class ReportChoices:
    """What can be chosen about a report."""

    gap_ms: int
    rates: Rates


@dataclass(frozen=True, slots=True)
class _MadeFrom:
    """What a table is made from: the rows, and the tables ``made`` before it."""

    usage: UsageRows
    period: Period
    choices: ReportChoices
    made: dict[str, DataFrame]

    @property
    def recent(self) -> "_MadeFrom":
        """The same of those dates that neighbours are looked for on."""
        period = self.period.last_dates(neighbours.DATES)
        if period == self.period:
            return self
        begin_ms = round(period.begin.timestamp() * 1000)
        made = {
            **self.made,
            "clients": self.made["clients"].where(F.col("date") >= period.begin.date()),
            "muted": self.made["muted"].where(F.col("begin_ms") >= begin_ms),
        }
        return _MadeFrom(self.usage.from_time(period.begin), period, self.choices, made)

    def named(self, counted: DataFrame) -> DataFrame:
        """Return a table of counters with their names."""
        return self.made["counters"].join(counted, [*COUNTED])


def _moments(of: _MadeFrom) -> DataFrame:
    return moments.moments(of.usage, of.made["candidates"], of.made["clients"])


def _victims(of: _MadeFrom) -> DataFrame:
    counted = evidence.counted(of.made["clients"], of.made["capped"])
    return evidence.victims(of.made["muted"], of.made["moments"], of.made["neighbours"], counted, of.period)


_TABLES: Final[Mapping[str, Callable[[_MadeFrom], DataFrame]]] = {
    "loss": lambda of: loss.loss(of.usage, of.period),
    "clients": lambda of: clients.clients(of.usage, of.period.rows),
    "capped": lambda of: caps.capped(of.usage, of.period.capped),
    "addresses": lambda of: addresses.addresses(of.usage),
    "counters": lambda of: headroom.counters(of.made["clients"], of.made["capped"], of.made["addresses"]),
    "rules": lambda of: rules.rules(of.usage, of.made["capped"], of.period.capped),
    "muted": lambda of: muted.muted(of.usage, of.period.capped),
    "episodes": lambda of: episodes.episodes(of.made["muted"], of.choices.gap_ms),
    "headroom_days": lambda of: headroom.headroom(of.usage, of.period),
    "headroom": lambda of: of.named(of.made["headroom_days"].where("date is null").drop("date")),
    "trend": lambda of: of.named(trend.trend(trend.days(of.made["headroom_days"], of.period))),
    "talkers": lambda of: talkers.talkers(of.made["clients"]),
    "over_time": lambda of: talkers.over_time(of.usage, of.made["talkers"], draw.SERIES, of.period.step_s),
    "candidates": lambda of: neighbours.candidates(of.recent.made["clients"]),
    "moments": lambda of: _moments(of.recent),
    "neighbours": lambda of: neighbours.neighbours(of.made["moments"], of.made["candidates"], of.recent.period),
    "evidence": lambda of: evidence.evidence(of.made["moments"], of.made["neighbours"], of.recent.period),
    "victims": lambda of: _victims(of.recent),
    "chargeback": lambda of: chargeback.chargeback(of.made["clients"], of.choices.rates, of.period, of.made["loss"]),
}
"""In the order in which they are made. ``candidates`` and ``moments`` are what neighbours are found from."""
NAMES: Final = tuple(_TABLES)


def make(
    usage: UsageRows, period: Period, results: Results, choices: ReportChoices, step: Callable[[str], None]
) -> dict[str, DataFrame]:
    """Keep all tables, and return them by name. ``step`` is told the name of each before it is made."""
    source = _MadeFrom(usage, period, choices, {})
    for name, table in _TABLES.items():
        step(name)
        source.made[name] = results.keep(name, table(source))
    return source.made
