"""The verdict on each limit of a quota file, with its reason, in the form of `sluice quotas diff`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from analysis.kernel.units import REPLAYED, not_replayed
from analysis.page.words import counted
from analysis.recommend.choices import Choices
from analysis.recommend.need import Confidence, Need
from analysis.recommend.quota_counters import UNLIMITED, Quota
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy, Terms
from quotas.stores.edit import number
from quotas.texts import shown

_MOST_LINES: Final = 20
"""The most lines of each fate except changes."""
_PLAIN: Final = Terms()


class Fate(StrEnum):
    """The fate of a limit; the value is the mark of its line, as in `sluice quotas diff`."""

    CHANGE = "~"
    SAME = "="
    LOW = "!"
    UNUSED = "?"
    LEFT = "x"


_SAID: Final = {
    Fate.CHANGE: "to change",
    Fate.SAME: "as recommended",
    Fate.LOW: "left for low confidence",
    Fate.UNUSED: "unused",
    Fate.LEFT: "left as they are",
}


@dataclass(frozen=True, slots=True)
class LimitVerdict:
    """The fate of one limit, and the reason."""

    entity: Entity
    kind: QuotaKind
    before: float
    fate: Fate
    why: str
    need: Need | None = None

    def line(self, *, propose: bool) -> str:
        before = number(self.before) if self.before < UNLIMITED else "unlimited"
        said = f"{self.fate} {self.entity.describe()} {self.kind} {before}"
        if self.need is None or self.fate not in (Fate.CHANGE, Fate.LOW):
            return f"{said}: {self.why}"
        proposed = "proposed: " if propose else ""
        left = f"left, {self.why}: " if self.fate is Fate.LOW else ""
        return f"{said} → {proposed}{number(self.need.limit)} ({left}{self.need.words()})"


def verdicts(policy: Policy, needs: Mapping[Quota, Need], choices: Choices, *, accept_low: bool) -> list[LimitVerdict]:
    """Return the verdict on each limit, in the order of the file, without caps."""
    return [
        _verdict(policy, entity, kind, needs.get((entity, kind)), accept_low=accept_low)
        for entity, limits in policy.limits.items()
        if not entity.cap and choices.chosen(entity)
        for kind in limits
    ]


def _verdict(policy: Policy, entity: Entity, kind: QuotaKind, need: Need | None, *, accept_low: bool) -> LimitVerdict:
    before = float(policy.limits[entity][kind])
    if words := not_replayed(policy.terms.get(entity, _PLAIN)):
        are = "is" if len(words) == 1 else "are"
        return LimitVerdict(entity, kind, before, Fate.LEFT, f"{' and '.join(words)} {are} not replayed")
    if kind not in REPLAYED:
        return LimitVerdict(entity, kind, before, Fate.LEFT, f"{kind} is not replayed")
    if need is None:
        return LimitVerdict(entity, kind, before, Fate.UNUSED, "unused, left unchanged")
    if need.refused:
        return LimitVerdict(entity, kind, before, Fate.LEFT, need.refused)
    if need.limit == before:
        return LimitVerdict(entity, kind, before, Fate.SAME, need.needed_words(), need)
    if need.confidence is Confidence.LOW and not accept_low:
        return LimitVerdict(entity, kind, before, Fate.LOW, need.low_because, need)
    return LimitVerdict(entity, kind, before, Fate.CHANGE, "", need)


def lines(of: Sequence[LimitVerdict], *, propose: bool = False) -> Iterator[str]:
    """Yield the lines of all changes, and the first of each other fate."""
    for fate in Fate:
        mine = [each for each in of if each.fate is fate]
        if fate is Fate.SAME:
            continue
        most = len(mine) if fate is Fate.CHANGE else _MOST_LINES
        yield from (shown(each.line(propose=propose)) for each in mine[:most])
        if len(mine) > most:
            yield f"{fate} and {len(mine) - most} more {_SAID[fate]}"


def summary(of: Sequence[LimitVerdict], policy: Policy, outside: Sequence[str]) -> str:
    """Return the number of limits by fate, and of clients without a quota, in one line."""
    numbers = [(sum(each.fate is fate for each in of), words) for fate, words in _SAID.items()]
    said = [f"{count} {words}" for count, words in numbers if count]
    if caps := sum(entity.cap for entity in policy.limits):
        said.append(f"{counted(caps, 'cap')} left unchanged: none is recommended")
    return ", ".join([*said, *outside]) or "nothing to say"
