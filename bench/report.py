"""The table of a run: medians, spreads, and ratios of samples that were taken next to each other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from bench.measure import FIGURES, Sample
from bench.programs import DIRECT, HAPROXY, NO_QUOTAS, PURE, RELAY, SLUICE
from bench.rows import Client, Measure, Row

Samples = Mapping[str, Sequence[Sample]]
"""Target → its samples of one row, one per round."""

LEAST_HEADROOM: Final = 1.2
"""The least ratio of the load's direct throughput to that through a proxy; below it the load may have been the
limit.
"""
ALWAYS_BUSY: Final = 0.95
"""The busy share of a core that counts as never idle."""

_SPEEDS: Final = {
    Client.GENERATOR: ("requests_per_s", "requests/s"),
    Client.REPLAY: ("requests_per_s", "requests/s"),
    Client.JAVA: ("mb_per_s", "MB/s"),
}
_UNITS: Final = {
    "cpu_us_per_request": "µs CPU/request",
    "cpu_s_per_gb": "s CPU/GB",
    "p50_us": "µs added, p50",
    "p99_us": "µs added, p99",
    "cpu_us_per_connection": "µs CPU/connection",
    "connections_per_cpu_s": "connections/CPU s",
    "kib_per_connection": "KiB/connection",
    "rss_mib": "MiB, 20 connections",
    "listening_ms": "ms",
    "wall_ms": "ms",
}


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, minimum and maximum."""

    middle: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread | None":
        return cls(median(values), min(values), max(values)) if values else None

    def __str__(self) -> str:
        ends = f" ({short(self.least)}..{short(self.most)})" if self.least != self.most else ""
        return f"{short(self.middle)}{ends}"


def short(value: float) -> str:
    """Return a value with three significant digits."""
    size = abs(value)
    return f"{value:,.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def values_of(row: Row, figure: str, name: str, samples: Samples) -> list[float]:
    """Return one value per round; for latency, the difference to the direct connection in the same round."""
    values = [sample[figure] for sample in samples.get(name, ())]
    if row.measure is Measure.LATENCY and values:
        direct = [sample[figure] for sample in samples.get(DIRECT, ())]
        return [value - base for value, base in zip(values, direct, strict=True)]
    return values


def ratios(row: Row, figure: str, name: str, samples: Samples) -> list[float]:
    """Return the ratio to the row's baseline per round, so that disturbances of the machine affect both.

    Empty for latency: a difference may be close to zero or negative.
    """
    if row.measure is Measure.LATENCY:
        return []
    ours = values_of(row, figure, name, samples)
    theirs = values_of(row, figure, row.against, samples)
    return [mine / other for mine, other in zip(ours, theirs, strict=False) if other > 0]


def verdict(row: Row, figure: str, samples: Samples) -> tuple[str, bool | None]:
    """Return the aim as text, and whether it is met; None if there is no aim or no figure."""
    if row.aim is None or figure != FIGURES[row.measure][0]:
        return "", None
    compared = ratios if row.aim.is_ratio else values_of
    reached = compared(row, figure, SLUICE, samples)
    text = f"≤ {row.aim.limit:g}{' x' if row.aim.is_ratio else ''}"
    return text, median(reached) <= row.aim.limit if reached else None


HEADINGS: Final = ("row", "unit", "haproxy", "relay", "pure", "sluice", "relay x", "pure x", "sluice x", "aim", "")
WIDTHS: Final = (16, 20, 20, 20, 20, 20, 7, 7, 18, 8, 7)


def line(cells: Sequence[str]) -> str:
    return " ".join(f"{cell:<{width}}" for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()


def lines_of(row: Row, samples: Samples) -> list[str]:
    """Return the row's lines in the table: one for each figure."""
    found = []
    for figure in FIGURES[row.measure]:
        spreads = [Spread.of(values_of(row, figure, name, samples)) for name in (HAPROXY, RELAY, PURE, SLUICE)]
        relay, pure, sluice = (Spread.of(ratios(row, figure, name, samples)) for name in (RELAY, PURE, SLUICE))
        aim, met = verdict(row, figure, samples)
        cells = [str(spread) if spread else "" for spread in spreads]
        times = [short(each.middle) if each else "" for each in (relay, pure)] + [str(sluice) if sluice else ""]
        found.append(line([row.name, _UNITS[figure], *cells, *times, aim, _met(met)]))
        base = Spread.of(values_of(row, figure, NO_QUOTAS, samples))
        if base:
            found[-1] += f"   {NO_QUOTAS} {base}"
    return found


def load_lines(row: Row, samples: Samples) -> list[str]:
    """Return lines that show whether the load was the limit: its throughput directly and through each proxy, and how
    busy all were.
    """
    speed, unit = _SPEEDS[row.load.client]
    direct = [sample[speed] for sample in samples.get(DIRECT, ()) if speed in sample]
    found = []
    for name, taken in samples.items():
        keys = (speed, "proxy_busy", "load_busy")
        if not all(key in each for each in taken for key in keys):
            return []
        reached, proxy, load = (median(each[key] for each in taken) for key in keys)
        headroom = median(direct) / reached if direct else None
        may_limit = name != DIRECT and row.load.rate_per_s is None and not row.load.is_real
        limited = may_limit and _was_the_limit(headroom, proxy, load)
        found.append(
            f"{row.name:<16} {name:<8} {reached:>10,.0f} {unit:<10}   proxy {proxy:>5.0%}   load and broker"
            f" {load:>5.0%}"
            + (f"   directly {short(headroom)} x" if headroom else "")
            + ("   THE LOAD MAY HAVE BEEN THE LIMIT" if limited else "")
        )
    return found


def _was_the_limit(headroom: float | None, proxy_busy: float, load_busy: float) -> bool:
    """Without a direct connection to compare with, a load that was never idle while the proxy was counts as the
    limit.
    """
    if headroom is not None:
        return headroom < LEAST_HEADROOM
    return load_busy > ALWAYS_BUSY > proxy_busy


def _met(met: bool | None) -> str:
    return "" if met is None else "met" if met else "NOT MET"
