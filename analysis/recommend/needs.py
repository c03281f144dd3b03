"""What is recommended, and why: the needs of each quota, from what workers found of its counters."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from analysis.kernel.advice import Confidence, confidence, round_up, with_headroom
from analysis.kernel.censoring import Answer
from analysis.kernel.histogram import Floats
from analysis.kernel.units import Unit
from analysis.page.words import duration, limit, percent
from analysis.recommend.caps import Caps, said_of, under_caps
from analysis.recommend.choices import Choices
from analysis.recommend.searching import ANSWERS, FIGURES
from analysis.recommend.whose import Holder, Wanted
from analysis.replay.recording import Circumstances, Recording
from quotas.entities import Default, Entity, Group, Name, Prefix
from quotas.kinds import QuotaKind
from quotas.names import OTHER

_ENOUGH_S: Final = 60
"""Of use: who was seen for less has too little data."""
_MANY_MISSING: Final = 0.1
"""Of the documents: what was not recorded may have been the most."""


@dataclass(frozen=True, slots=True)
class Need:
    """What one entity needs of one kind, on the broker and proxy where it needs most. Rates are bytes per second."""

    kind: QuotaKind
    quota: float
    """With headroom, rounded up."""
    needed: float
    """0: less than the least quota, and not looked for."""
    unit: Unit
    p99: float
    """Of the seconds with use."""
    most: float
    """In any second."""
    surge: float
    """Over any window of enforcement."""
    now: str
    """What limits it now."""
    confidence: Confidence
    answer: Answer
    caps: tuple[str, ...] = ()
    """That its clients were charged to besides, while recorded."""
    held_by: str = ""
    """The cap that held them, where a cap did; "" where none did."""
    held_by_caps_alone: bool = False
    """Whatever held them was a cap: of its quota nothing was seen but that it did not."""
    low_because: str = ""
    """Why the confidence is low, where it is."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """Quotas for one entity; ``refused`` says why it gets none."""

    user: Name
    client_id: Name
    """"" where that part plays no role, or was never sent."""
    needs: tuple[Need, ...]
    refused: str = ""
    ip: Name = ""

    @property
    def entity(self) -> Entity | None:
        """Return whom it is for, None where no quota can be for that."""
        names = (self.user or None, self.client_id or None, self.ip or None)
        return Entity(*names) if any(names) else None


@dataclass(frozen=True, slots=True)
class _Facts:
    """What is known of counters beside what workers found: [unit] each."""

    found: dict[str, Floats]
    seconds: Floats
    """With use, at most."""
    now: list[set[tuple[str | None, float, float]]]
    caps: dict[int, Caps]


def recommendations(recording: Recording, choices: Choices, wanted: Wanted, figures: Floats) -> list[Recommendation]:
    """Return what is recommended for each holder of a quota, by name; ``figures`` are [FIGURES, unit]."""
    facts = _Facts(
        dict(zip(FIGURES, figures, strict=True)),
        wanted.units.sums(recording, "rows") * recording.circumstances.interval_ms / 1000,
        _limits_now(recording, wanted),
        under_caps(recording, wanted.units),
    )
    of: dict[Holder, dict[QuotaKind, list[int]]] = {}
    for number, (kind, holder) in enumerate(zip(wanted.kinds, wanted.holders, strict=True)):
        of.setdefault(holder, {}).setdefault(kind, []).append(number)
    hidden = any(client.client_id == OTHER for client in recording.clients)
    made = []
    for (user, client_id, ip), kinds in sorted(of.items(), key=lambda each: tuple(map(_order, each[0]))):
        because = "" if client_id is None or not hidden else f"{OTHER} hides whose use some was (usage.max_clients)"
        needs = tuple(
            _need(choices, wanted, facts, recording.circumstances, numbers, because) for numbers in kinds.values()
        )
        active_s = max(float(facts.seconds[number]) for numbers in kinds.values() for number in numbers)
        refused = _refused(user, client_id, active_s, from_records=wanted.from_records)
        made.append(Recommendation(user or "", client_id or "", needs, refused, ip or ""))
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
    decisive = max(numbers, key=lambda number: (found["needed"][number], facts.seconds[number]))
    answer = max((ANSWERS[int(found["answer"][number])] for number in numbers), key=ANSWERS.index)
    needed = float(found["needed"][decisive])
    trust, because = _trust(answer, circumstances, because)
    return Need(
        kind,
        max(float(with_headroom(needed, choices.headroom)), float(round_up(choices.least(kind)))),
        needed,
        wanted.counters[decisive],
        float(found["p99"][decisive]),
        float(found["most"][decisive]),
        float(found["surge"][decisive]),
        _said(kind, set().union(*(facts.now[number] for number in numbers))),
        trust,
        answer,
        *said_of(facts.caps, numbers),
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


def _order(name: Name) -> tuple[int, str]:
    match name:
        case Group(text):
            return 1, text
        case Prefix(text):
            return 1, text
        case Default():
            return 2, ""
    return 0, name or ""


def _refused(user: Name, client_id: Name, active_s: float, *, from_records: bool) -> str:
    if client_id == "":
        return "clients without a client-id cannot be named by a quota"
    if client_id == OTHER:
        return f"{OTHER} stands for many client-ids (usage.max_clients)"
    if user == "":
        return "users without a name cannot be named by a quota"
    if from_records and (isinstance(user, Group) or isinstance(client_id, Prefix)):
        return "who is in it, and by which terms, the present quota file says: give that as --quotas"
    if active_s < _ENOUGH_S:
        return f"too little data: used in {active_s:.0f} s"
    return ""


def _limits_now(recording: Recording, wanted: Wanted) -> list[set[tuple[str | None, float, float]]]:
    """Return [unit] the rules, and the least and most of their limits, that held for its clients."""
    found: list[set[tuple[str | None, float, float]]] = [set() for _ in wanted.counters]
    for kind, unit in wanted.units.unit_of.items():
        used = recording.used[kind]
        for client in np.flatnonzero(unit >= 0).tolist():
            limits = (float(used.least_limit[client]), float(used.most_limit[client]))
            found[int(unit[client])].add((used.rules[client], *limits))
    return found


def _said(kind: QuotaKind, limits: set[tuple[str | None, float, float]]) -> str:
    if len(limits) > 1:
        return f"{len(limits)} different limits"
    rule, least, most = next(iter(limits))
    if rule is None:
        return "unlimited"
    if not rule or least != most:
        return "a limit that changed meanwhile"
    return f"{limit(kind, least)} by {rule}"
