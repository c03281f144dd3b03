"""The tables of a report: made one after the other, of the rows and of those before it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

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
from analysis.metrics.muted import SCHEMA as MUTED
from analysis.metrics.period import Period
from analysis.metrics.rates import Rates
from analysis.page import draw
from analysis.table.exchange import Exchange
from analysis.table.parts import Parts
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
    made: dict[str, Parts]
    throttled: Exchange
    """What was muted, on its way to tasks."""

    @property
    def recent(self) -> "_MadeFrom":
        """The same of those dates that neighbours are looked for on."""
        period = self.period.last_dates(neighbours.DATES)
        if period == self.period:
            return self
        begin_ms = round(period.begin.timestamp() * 1000)
        made = {
            **self.made,
            "clients": self.made["clients"].within("date", period.begin.date()),
            "muted": self.made["muted"].within("begin_ms", begin_ms),
        }
        return _MadeFrom(self.usage.from_time(period.begin), period, self.choices, made, self.throttled)

    def whole(self, name: str) -> pa.Table:
        """Return a table of few rows."""
        return self.made[name].whole()


def _moments(of: _MadeFrom) -> Parts:
    return moments.moments(of.usage, of.whole("candidates"), of.made["clients"], of.period.rows)


def _counters(of: _MadeFrom) -> pa.Table:
    return headroom.counters(of.made["clients"], of.whole("capped"), of.whole("addresses"))


def _neighbours(of: _MadeFrom) -> pa.Table:
    return neighbours.neighbours(of.made["moments"], of.whole("candidates"), of.period)


def _evidence(of: _MadeFrom) -> pa.Table:
    return evidence.evidence(of.made["moments"], of.whole("neighbours"), of.period)


def _victims(of: _MadeFrom) -> pa.Table:
    found = of.whole("neighbours")
    return evidence.victims(
        of.made["muted"], of.made["moments"], found, of.made["clients"], of.whole("capped"), of.period
    )


def _trend(of: _MadeFrom) -> pa.Table:
    days = trend.days(of.made["headroom_days"], of.period)
    return headroom.named(trend.trend(days), of.whole("counters"))


_TABLES: Final[Mapping[str, Callable[[_MadeFrom], Parts | pa.Table]]] = {
    "loss": lambda of: loss.loss(of.usage, of.period),
    "clients": lambda of: clients.clients(of.usage, of.period.rows),
    "capped": lambda of: caps.capped(of.usage, of.period.capped),
    "addresses": lambda of: addresses.addresses(of.usage),
    "counters": _counters,
    "rules": lambda of: rules.rules(of.usage, of.whole("capped"), of.period.capped),
    "muted": lambda of: of.throttled.parts(iter, MUTED),
    "episodes": lambda of: of.throttled.parts(episodes.Episodes(of.choices.gap_ms), episodes.SCHEMA),
    "headroom_days": lambda of: headroom.headroom(of.usage, of.period),
    "headroom": lambda of: headroom.of_period(of.made["headroom_days"], of.whole("counters")),
    "trend": _trend,
    "talkers": lambda of: talkers.talkers(of.made["clients"]),
    "over_time": lambda of: talkers.over_time(of.usage, of.whole("talkers"), draw.SERIES, of.period.step_s),
    "candidates": lambda of: neighbours.candidates(of.recent.made["clients"]),
    "moments": lambda of: _moments(of.recent),
    "neighbours": lambda of: _neighbours(of.recent),
    "evidence": lambda of: _evidence(of.recent),
    "victims": lambda of: _victims(of.recent),
    "chargeback": lambda of: chargeback.chargeback(of.made["clients"], of.choices.rates, of.period, of.whole("loss")),
}
"""In the order in which they are made. ``candidates`` and ``moments`` are what neighbours are found from."""
NAMES: Final = tuple(_TABLES)


def make(
    usage: UsageRows, period: Period, results: Results, choices: ReportChoices, step: Callable[[str], None]
) -> dict[str, Parts]:
    """Keep all tables, and return them by name. ``step`` is told the name of each before it is made."""
    source = _MadeFrom(usage, period, choices, {}, muted.muted(usage, period.rows, period.capped))
    for name, make_it in _TABLES.items():
        step(name)
        table = make_it(source)
        source.made[name] = results.keep(name, table if isinstance(table, Parts) else Parts.of(table))
    return source.made
