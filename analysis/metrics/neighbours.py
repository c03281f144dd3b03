"""Noisy neighbours: whose peaks on a broker coincide with others' delays, more than chance would have it.

Time is cut into moments of 10 s. A client *peaks* in a moment in which it moves at least twice its own average on
that broker, and 2 % or more of all the broker's bytes. Others are *delayed* for as long as they are muted, and by
what their requests take. What is *usual* is of each client what belongs to its own use in the moment (``own_use``), or
to its own requests. Workers make sums of moments; ``coincidence`` says what they are worth.

What it does not say is that one caused the other: a quota mutes its own clients, whoever else is busy. So of mutes by a
counter of one's own only that is laid to others which own use does not explain; of clients that share a counter with
the one that peaks, all of it is: what one uses, the other cannot. It says with whom to begin when delays come in waves.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.metrics.broker_moments import CLIENT, MEASURES, MOMENT_S, PLACE, BrokerMoments, by_broker
from analysis.metrics.coincidence import (
    LEAST_BURSTS,
    LEVEL,
    Flags,
    Others,
    Weighed,
    adjusted,
    apart,
    bursts,
    coincides,
    later,
    weigh,
)
from analysis.metrics.period import Period
from analysis.metrics.runs import starts
from analysis.table import hashes
from analysis.table.arrays import ints, summed, together, with_columns
from analysis.table.parts import Parts
from analysis.table.schema import COUNT, FILE, LIMIT, TEXT

DATES: Final = 7
"""Of a longer period the last ones: sums of moments of a month would be as many as its rows."""
CANDIDATES: Final = 20
"""The clients of each broker that are looked at: those that move most."""
COINCIDES: Final = "coincides"
TOGETHER: Final = "together"
"""It coincides, and says nothing more than a stronger one (``behind_…``) that it peaks together with."""
CHANCE: Final = "chance"
"""Or less than LEAST_SCORE."""
TOO_FEW: Final = "too few"
"""Bursts, to say anything."""

_MOVED: Final = ("bytes_in", "bytes_out")
_CHOSEN: Final = pa.schema([*(FILE.field(name) for name in CLIENT), *((name, COUNT) for name in _MOVED)])
_FOUND: Final = pa.schema(
    [
        *(FILE.field(name) for name in CLIENT),
        *(("number", COUNT), ("measure", TEXT), ("verdict", TEXT)),
        *((name, LIMIT) for name in ("score", "low", "high", "p", "p_adjusted", "coincidence", "expected")),
        *((name, COUNT) for name in ("lag_s", "peaks", "bursts", "hours")),
        *((name, COUNT) for name in ("others_in_peaks_ms", "others_expected_ms", "others_ms")),
        *(("others_requests_in_peaks", COUNT), ("share_of_bytes", LIMIT)),
        *(("behind_user", TEXT), ("behind_client_id", TEXT)),
    ]
)


def candidates(clients: Parts) -> pa.Table:
    """Return the CLIENTs that may be neighbours, each with its ``number`` on its broker, from 1."""
    parts = (each.filter(each["user"].is_valid()) for each in clients.tables(_CHOSEN.names))
    named = together(summed(parts, CLIENT, dict.fromkeys(_MOVED, "sum")), _CHOSEN)
    moved = with_columns(named, {"bytes": ints(named, "bytes_in") + ints(named, "bytes_out")})
    most = [(name, "ascending") for name in CLIENT]
    most.insert(len(PLACE), ("bytes", "descending"))
    ranked = moved.filter(pc.greater(moved["bytes"], 0)).sort_by(most).select(CLIENT)
    first = starts(hashes.of_columns(ranked, PLACE))
    number = np.arange(len(ranked)) - np.repeat(first, np.diff(first, append=len(ranked))) + 1
    return with_columns(ranked, {"number": number}).filter(pa.array(number <= CANDIDATES))


def neighbours(sums: Parts, chosen: pa.Table, period: Period) -> pa.Table:
    """Return what is to be said of each candidate and measure (MEASURES): a verdict, and the numbers behind it.

    ``sums`` is from ``moments``. CLIENT, ``number``, ``measure``, ``verdict``; ``score``, the part of others' delay
    that is in its peaks beyond what is ``expected`` there (``coincidence`` - ``expected``), and its 95 % interval
    ``low`` to ``high``; ``p``, and corrected for all candidates ``p_adjusted``; ``lag_s`` after a peak; how many
    ``peaks``, ``bursts`` of them, and ``hours`` that could be compared; the sums. Others' sums are null where nothing
    was compared.
    """
    names = {
        (each["cluster"], each["broker"], each["number"]): (each["user"], each["client_id"])
        for each in chosen.to_pylist()
    }
    found = [each for broker in by_broker(sums, period) for each in _candidates(broker, len(names) * len(MEASURES))]
    _judge(found)
    return pa.Table.from_pylist([each.row(names) for each in found], _FOUND)


@dataclass(slots=True)
class _Candidate:
    """One of the clients that move most, by one measure."""

    place: tuple[str, int]
    number: int
    measure: str
    share_of_bytes: float
    peaks: int
    bursts: int
    tested: Weighed | None
    requests_in_peaks: int = 0
    """Of others."""
    kept: tuple[Flags, Others] | None = None
    """Only of one that may coincide: others need not stay in memory."""
    p_adjusted: float | None = None
    verdict: str = TOO_FEW
    behind: "_Candidate | None" = None

    def row(self, names: dict[tuple[str, int, int], tuple[str, str | None]]) -> dict[str, Any]:
        user, client_id = names[*self.place, self.number]
        behind = (None, None) if self.behind is None else names[*self.place, self.behind.number]
        same = ("number", "measure", "verdict", "p_adjusted", "peaks", "bursts", "share_of_bytes")
        row = {
            **dict(zip(CLIENT, (*self.place, user, client_id), strict=True)),
            **{name: getattr(self, name) for name in same},
            **dict(zip(("behind_user", "behind_client_id"), behind, strict=True)),
        }
        if self.tested is None:
            return row
        found = self.tested
        return row | {
            **{name: getattr(found, name) for name in ("score", "low", "high", "p", "hours")},
            "coincidence": found.in_peaks / found.delay,
            "expected": found.expected / found.delay,
            "lag_s": found.lag * MOMENT_S,
            "others_in_peaks_ms": round(found.in_peaks),
            "others_expected_ms": round(found.expected),
            "others_ms": round(found.delay),
            "others_requests_in_peaks": self.requests_in_peaks,
        }


def _candidates(broker: BrokerMoments, tests: int) -> Iterator[_Candidate]:
    for number in sorted(broker.own):
        peak = broker.peak(number)
        count, begins = int(peak.sum()), len(bursts(peak))
        share = float(broker.of(number, "bytes").sum() / max(broker.totals["bytes"].sum(), 1))
        for measure in MEASURES if count else ():
            others = broker.others(number, measure)
            result = weigh(peak, others, tests) if begins >= LEAST_BURSTS else None
            each = _Candidate(broker.place, number, measure, share, count, begins, result)
            if result is not None:
                then = later(peak, result.lag)
                each.requests_in_peaks = round(float(broker.elsewhere(number, "requests")[then].sum()))
                each.kept = (peak, others) if result.p <= LEVEL else None
            yield each


def _judge(found: list[_Candidate]) -> None:
    """Correct for how many were looked at; and leave to the strongest what others only share with it."""
    compared = [each for each in found if each.tested is not None]
    for each, p in zip(compared, adjusted([one.tested.p for one in compared if one.tested]), strict=True):
        each.p_adjusted = p
        each.verdict = COINCIDES if each.tested and coincides(each.tested, p) else CHANCE
    for place, measure in sorted({(each.place, each.measure) for each in compared}):
        same = [each for each in compared if (each.place, each.measure, each.verdict) == (place, measure, COINCIDES)]
        ranked = sorted(
            ((each, each.tested, *each.kept) for each in same if each.tested and each.kept),
            key=lambda known: -known[1].score,
        )
        behind = apart(
            [(peak, result.lag) for _, result, peak, _ in ranked], [others for *_, others in ranked], len(compared)
        )
        for (each, *_), stronger in zip(ranked, behind, strict=True):
            if stronger is not None:
                each.verdict, each.behind = TOGETHER, ranked[stronger][0]
