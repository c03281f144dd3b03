"""Recommendations and their reasons: the needs of each quota, from the figures of its counters."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from analysis.demand.recording import Circumstances, Recording
from analysis.kernel.advice import Confidence, confidence, round_up, with_headroom
from analysis.kernel.censoring import Answer
from analysis.kernel.demand import Bools
from analysis.kernel.histogram import Floats
from analysis.kernel.units import Unit
from analysis.page.words import duration, percent
from analysis.recommend.choices import Choices
from analysis.recommend.searching import ANSWERS, FIGURES
from analysis.recommend.whose import Wanted
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.names import OTHER

_ENOUGH_S: Final = 60
"""Seconds of use: a client seen for less has too little data."""
_MANY_MISSING: Final = 0.1
"""Share of the documents: what was not recorded may have been the most."""
_NEARLY_ALL: Final = 0.99
"""Share of the time: intervals are whole milliseconds."""


@dataclass(frozen=True, slots=True)
class Need:
    """The quota that an entity needs of one kind, on the broker where it needs most. Rates are in the limit's unit."""

    kind: QuotaKind
    quota: float
    """With headroom, rounded up."""
    needed: float
    """0: less than the least quota, and not looked for."""
    unit: Unit
    p99: float
    """The p99 of the seconds with use."""
    most: float
    """In any second."""
    surge: float
    """Over any window of enforcement."""
    confidence: Confidence
    answer: Answer
    capped: bool = False
    """Whether its clients were charged to caps besides, while recorded."""
    by_caps: float = 0.0
    """The share of the time held up for which caps held it."""
    low_because: str = ""
    """Why the confidence is low, where it is."""

    @property
    def by_caps_alone(self) -> bool:
        return self.by_caps >= _NEARLY_ALL


@dataclass(frozen=True, slots=True)
class Recommendation:
    """Quotas for one entity; ``refused`` says why it gets none."""

    entity: Entity
    needs: tuple[Need, ...]
    refused: str = ""


@dataclass(frozen=True, slots=True)
class _Facts:
    """Facts about counters: [unit] each."""

    found: dict[str, Floats]
    active_s: Floats
    """With use, at most."""
    muted_s: Floats
    cap_muted_s: Floats
    capped: Bools


def recommendations(recording: Recording, choices: Choices, wanted: Wanted, figures: Floats) -> list[Recommendation]:
    """Return a recommendation for each holder of a quota; ``figures`` are [FIGURES, unit]."""
    units = wanted.units
    facts = _Facts(
        dict(zip(FIGURES, figures, strict=True)),
        units.active_s(recording),
        units.sums(recording, "muted_s"),
        units.sums(recording, "cap_muted_s"),
        units.sums(recording, "capped") > 0,
    )
    of: dict[Entity, dict[QuotaKind, list[int]]] = {}
    for number, (kind, holder) in enumerate(zip(wanted.kinds, wanted.holders, strict=True)):
        of.setdefault(holder, {}).setdefault(kind, []).append(number)
    hidden = any(client.client_id == OTHER for client in recording.clients)
    made = []
    for holder, kinds in of.items():
        unsure = hidden and holder.client_id is not None
        because = f"{OTHER} hides whose use some was (usage.max_clients)" if unsure else ""
        needs = tuple(
            _need(choices, wanted, facts, recording.circumstances, numbers, because) for numbers in kinds.values()
        )
        active_s = max(float(facts.active_s[number]) for numbers in kinds.values() for number in numbers)
        refused = f"too little data: used in {active_s:.0f} s" if active_s < _ENOUGH_S else ""
        made.append(Recommendation(holder, needs, refused))
    return made


def _need(
    choices: Choices,
    wanted: Wanted,
    facts: _Facts,
    circumstances: Circumstances,
    numbers: Sequence[int],
    because: str,
) -> Need:
    """Return what a quota needs: of its counters, the one that needs most decides."""
    found, kind = facts.found, wanted.kinds[numbers[0]]
    decisive = max(numbers, key=lambda number: (found["needed"][number], facts.active_s[number]))
    answer = max((ANSWERS[int(found["answer"][number])] for number in numbers), key=ANSWERS.index)
    needed = float(found["needed"][decisive])
    trust, because = _trust(answer, circumstances, because)
    muted_s, cap_muted_s = facts.muted_s[numbers].sum(), facts.cap_muted_s[numbers].sum()
    return Need(
        kind,
        max(float(with_headroom(needed, choices.headroom)), float(round_up(choices.least(kind)))),
        needed,
        wanted.counters[decisive],
        float(found["p99"][decisive]),
        float(found["most"][decisive]),
        float(found["surge"][decisive]),
        trust,
        answer,
        bool(np.any(facts.capped[numbers])),
        float(cap_muted_s / muted_s) if muted_s else 0.0,
        because,
    )


def _trust(answer: Answer, circumstances: Circumstances, because: str) -> tuple[Confidence, str]:
    """Return how far a need can be trusted, and why it cannot; ``because`` is a reason of its own, if there is one."""
    recorded_s = (circumstances.end_ms - circumstances.begin_ms) / 1000
    missing = circumstances.missing_documents / max(circumstances.missing_documents + circumstances.documents, 1)
    trust = confidence([answer], recorded_s)[0]
    reasons = [
        (answer is Answer.UNKNOWN, "held up until the recording ended"),
        (trust is Confidence.LOW and answer is not Answer.UNKNOWN, f"recorded for {duration(recorded_s)} alone"),
        (missing > _MANY_MISSING, f"{percent(missing)} of the records are missing"),
        (bool(because), because),
    ]
    said = ", ".join(reason for holds, reason in reasons if holds)
    return (Confidence.LOW if said else trust), said
