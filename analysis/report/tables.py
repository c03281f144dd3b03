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
    sharing,
    talkers,
    trend,
)
from analysis.metrics.period import Period
from analysis.metrics.rates import Rates
from analysis.page import draw
from analysis.table.parts import Parts
from analysis.table.reading import Making
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
    read: Mapping[str, Parts]
    """What tasks made of the rows (``makings``)."""

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
        return _MadeFrom(self.usage.from_time(period.begin), period, self.choices, made, self.read)

    def whole(self, name: str) -> pa.Table:
        """Return a table of few rows."""
        return self.made[name].whole()


def _moments(of: _MadeFrom) -> Parts:
    chosen, of_clients = of.whole("candidates"), of.made["clients"]
    held = sharing.Held.of(chosen, of_clients, of.whole("capped"))
    return moments.moments(of.usage, chosen, of_clients, held, of.period.rows)


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
    "loss": lambda of: loss.loss(of.read["loss"].whole(), of.usage, of.period),
    "clients": lambda of: of.read["clients"],
    "capped": lambda of: of.read["capped"],
    "addresses": lambda of: of.read["addresses"],
    "counters": _counters,
    "rules": lambda of: rules.rules(of.read["rules"].whole(), of.whole("capped")),
    "muted": lambda of: of.read["muted"],
    "episodes": lambda of: of.read["episodes"],
    "headroom_days": lambda of: of.read["headroom_days"],
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


def makings(usage: UsageRows, period: Period, gap_ms: int) -> list[Making]:
    """Return what tasks make of the rows of a period, in one reading of them."""
    return [
        *(loss.making(usage, period), clients.making(), caps.making(period.capped), addresses.making()),
        *(rules.making(period.capped), muted.making(period.capped), episodes.making(period.capped, gap_ms)),
        headroom.making(usage, period),
    ]


def make(
    usage: UsageRows,
    read: Mapping[str, Parts],
    period: Period,
    results: Results,
    choices: ReportChoices,
    step: Callable[[str], None],
) -> dict[str, Parts]:
    """Keep all tables, and return them by name; ``read`` are those of ``makings``.

    ``step`` is told the name of each before it is made.
    """
    source = _MadeFrom(usage, period, choices, {}, read)
    for name, make_it in _TABLES.items():
        step(name)
        table = make_it(source)
        source.made[name] = results.keep(name, table if isinstance(table, Parts) else Parts.of(table))
    return source.made
