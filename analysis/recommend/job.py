"""Finds the smallest limit that meets the target, for each quota that has counters with use."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from analysis.demand.rows import Rows
from analysis.demand.sums import Circumstances, Sums
from analysis.kernel.arrays import Floats
from analysis.kernel.censoring import Answer
from analysis.kernel.search import enough
from analysis.recommend.choices import Choices
from analysis.recommend.figures import FIGURES, Search
from analysis.recommend.need import Confidence, Need
from analysis.recommend.quota_counters import Quota, QuotaCounters
from quotas.kinds import BYTES, QuotaKind
from quotas.names import OTHER
from quotas.texts import duration, share

_LEAST_BYTES_PER_S: Final = 1000.0
"""The lowest recommended byte rate."""
_ENOUGH_S: Final = 60
"""Seconds of use that a recommendation needs."""
_MANY_MISSING: Final = 0.1
"""Share of missing documents above which confidence is low."""
_DAY_S: Final = 86_400


def recommend(sums: Sums, choices: Choices, wanted: QuotaCounters, rows: Rows) -> dict[Quota, Need]:
    """Return the need of each quota with use; ``rows`` are read only if sums do not tell it."""
    units = wanted.units
    window = sums.circumstances.window
    # An upper bound: usage that counts together fits into two windows, wherever samples begin.
    most = enough(2 * units.surge(sums), window)
    total = units.total(sums, "used")
    least = np.zeros(len(wanted.quotas))
    np.maximum.at(least, wanted.quota_of, total / sums.circumstances.seconds)
    # A counter does not decide if another broker's mean is above its upper bound.
    floor = np.array([_floor(kind) for _, kind in wanted.quotas])[wanted.quota_of]
    searched = (total > 0) & (most >= least[wanted.quota_of]) & (most * (1 + choices.headroom) > floor)
    found = np.zeros((len(FIGURES), units.units))
    if searched.any():
        answered, figures = rows.replayed(sums, units.only(searched), Search(window, choices.target), FIGURES)
        found[:, answered] = figures
    return _needs(sums, choices, wanted, dict(zip(FIGURES, found, strict=True)))


def with_headroom(needed: float, headroom: float) -> float:
    """Add headroom, and round up to two digits, by at most 10 %. 0 stays 0."""
    wanted = needed * (1 + headroom)
    step = 10.0 ** max(math.floor(math.log10(max(wanted, 1))) - 1, 0)
    steps = math.floor(wanted / step)
    return (steps if steps * step >= wanted else steps + 1) * step


def _floor(kind: QuotaKind) -> float:
    return _LEAST_BYTES_PER_S if kind.row.unit is BYTES else 1.0


def _needs(sums: Sums, choices: Choices, wanted: QuotaCounters, found: dict[str, Floats]) -> dict[Quota, Need]:
    units = wanted.units
    facts = {name: units.total(sums, name) for name in ("muted_s", "cap_muted_s", "capped")}
    facts |= {**found, "active_s": units.active_s(sums)}
    order = np.argsort(wanted.quota_of, kind="stable")
    counters = np.split(order, np.flatnonzero(np.diff(wanted.quota_of[order])) + 1) if len(order) else []
    active_s: dict[object, float] = {}
    for (entity, _), numbers in zip(wanted.quotas, counters, strict=True):
        active_s[entity] = max(active_s.get(entity, 0.0), float(facts["active_s"][numbers].max()))
    hidden = any(client.client_id == OTHER for client in sums.clients)
    needs: dict[Quota, Need] = {}
    for quota, numbers in zip(wanted.quotas, counters, strict=True):
        entity, kind = quota
        # The counter that needs most decides.
        decisive = max(numbers.tolist(), key=lambda each: (facts["needed"][each], facts["active_s"][each]))
        answer = Answer(int(facts["answer"][numbers].max()))
        reasons = [f"{OTHER} contains part of the use (usage.max_clients)"] if hidden and entity.client_id else []
        confidence, low_because = confidence_of(answer, sums.circumstances, reasons)
        muted_s, cap_muted_s = facts["muted_s"][numbers].sum(), facts["cap_muted_s"][numbers].sum()
        needed, p99, most, surge = (float(facts[name][decisive]) for name in ("needed", "p99", "most", "surge"))
        used_s = active_s[entity]
        needs[quota] = Need(
            kind,
            max(with_headroom(needed, choices.headroom), _floor(kind)),
            needed,
            wanted.names[decisive],
            p99,
            most,
            surge,
            confidence,
            answer,
            capped=bool(facts["capped"][numbers].any()),
            by_caps=float(cap_muted_s / muted_s) if muted_s else 0.0,
            low_because=low_because,
            refused=f"too little data: used in {used_s:.0f} s" if used_s < _ENOUGH_S else "",
        )
    return needs


def confidence_of(answer: Answer, circumstances: Circumstances, reasons: Sequence[str]) -> tuple[Confidence, str]:
    """Return the confidence in a need, and why it is low; ``reasons`` are known reasons for that."""
    recorded_s = (circumstances.end_ms - circumstances.begin_ms) / 1000
    missing = circumstances.missing_documents / max(circumstances.missing_documents + circumstances.documents, 1)
    low = []
    if answer is Answer.UNKNOWN:
        low.append("throttled until the recording ended")
    elif recorded_s < _DAY_S:
        low.append(f"recorded for only {duration(recorded_s)}")
    if missing > _MANY_MISSING:
        low.append(f"{share(missing)} of the records are missing")
    if low := [*low, *reasons]:
        return Confidence.LOW, ", ".join(low)
    week = recorded_s >= 7 * _DAY_S and answer is Answer.EXACT
    return (Confidence.HIGH if week else Confidence.MEDIUM), ""
