"""The present quotas with what is recommended put in its place: nothing else of the file is touched.

What is changed are limits that stand there. Nobody is added: a new rule would take its clients from another one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from analysis.demand.terms import not_replayed
from analysis.errors import AnalysisError
from analysis.kernel.advice import Confidence
from analysis.kernel.units import REPLAYED
from analysis.page.words import counted, plain
from analysis.recommend.choices import Choices
from analysis.recommend.needs import Need, Recommendation
from analysis.recommend.proposing import with_proposals
from analysis.recommend.whose import UNLIMITED, matches
from analysis.recommend.wording import needs, of_caps, trust
from config.document import read_text
from config.loader import load_settings
from config.problems import ConfigError
from config.stores import FileStore
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy, Terms
from quotas.stores.edit import edited, number
from quotas.stores.file import LoadedPolicy, parse

_MOST_LINES: Final = 20
"""Of each fate but changes."""
_PLAIN: Final = Terms()


class Fate(StrEnum):
    """What becomes of a limit; the value is the mark of its line, as `sluice quotas diff` has them."""

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
class Present:
    """A quota file as it was read."""

    path: Path
    text: str
    loaded: LoadedPolicy

    @property
    def policy(self) -> Policy:
        return self.loaded.policy

    def is_unchanged(self) -> bool:
        """Whether the file says what it said."""
        try:
            return read_text(self.path) == self.text
        except ConfigError:
            return False


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of one limit, and why."""

    entity: Entity
    kind: QuotaKind
    before: float
    fate: Fate
    why: str
    need: Need | None = None

    def line(self, *, propose: bool) -> str:
        """Return a line of the difference."""
        before = number(self.before) if self.before < UNLIMITED else "unlimited"
        said = f"{self.fate} {self.entity.describe()} {self.kind} {before}"
        if self.need is None or self.fate not in (Fate.CHANGE, Fate.LOW):
            return f"{said}: {self.why}"
        proposed = "proposed: " if propose else ""
        left = f"left, {self.why}: " if self.fate is Fate.LOW else ""
        found = f"{needs(self.need)}; {trust(self.need)}{of_caps(self.need)}"
        return f"{said} → {proposed}{number(self.need.quota)} ({left}{found})"


def read(path: Path) -> Present:
    """Return the quotas of a file. Raises AnalysisError."""
    try:
        text = read_text(path)
        return Present(path, text, parse(str(path), text))
    except ConfigError as error:
        raise AnalysisError(str(error)) from None


def quota_file_of(config: Path) -> Path:
    """Return the quota file that a configuration keeps its quotas in. Raises AnalysisError where it has none."""
    try:
        stores = load_settings(config).quotas.layers
    except ConfigError as error:
        raise AnalysisError(str(error)) from None
    if len(stores) == 1 and isinstance(stores[0], FileStore):
        return stores[0].path
    raise AnalysisError(
        f"{config}: its quotas are not in one file: write them into one with `sluice quotas export -c {config} > "
        "quotas.yaml`, and give that as --quotas"
    )


def verdicts(policy: Policy, found: Iterable[Recommendation], choices: Choices, *, accept_low: bool) -> list[Verdict]:
    """Return what becomes of each limit of the quotas, in the order of the file; caps have none."""
    by_holder = {each.entity: each for each in found}
    return [
        _verdict(policy, entity, kind, by_holder.get(entity), accept_low=accept_low)
        for entity, limits in policy.limits.items()
        if not entity.cap and matches(entity.describe(), choices)
        for kind in limits
    ]


def _verdict(
    policy: Policy, entity: Entity, kind: QuotaKind, found: Recommendation | None, *, accept_low: bool
) -> Verdict:
    before = float(policy.limits[entity][kind])
    if words := not_replayed(policy.terms.get(entity, _PLAIN)):
        return Verdict(entity, kind, before, Fate.LEFT, f"{' and '.join(words)} of it is not replayed")
    if kind not in REPLAYED:
        return Verdict(entity, kind, before, Fate.LEFT, f"{kind} is not replayed")
    need = next((each for each in found.needs if each.kind is kind), None) if found else None
    if found is None or need is None:
        return Verdict(entity, kind, before, Fate.UNUSED, "nobody used it, and it is left as it is")
    if found.refused:
        return Verdict(entity, kind, before, Fate.LEFT, found.refused)
    if need.quota == before:
        return Verdict(entity, kind, before, Fate.SAME, needs(need), need)
    if need.confidence is Confidence.LOW and not accept_low:
        return Verdict(entity, kind, before, Fate.LOW, need.low_because, need)
    return Verdict(entity, kind, before, Fate.CHANGE, "", need)


def lines(of: Sequence[Verdict], *, propose: bool = False) -> Iterator[str]:
    """Yield the difference: all that is changed, of what is left the first ones."""
    for fate in Fate:
        mine = [each for each in of if each.fate is fate]
        if fate is Fate.SAME:
            continue
        most = len(mine) if fate is Fate.CHANGE else _MOST_LINES
        yield from (plain(each.line(propose=propose)) for each in mine[:most])
        if len(mine) > most:
            yield f"{fate} and {len(mine) - most} more {_SAID[fate]}"


def summary(of: Sequence[Verdict], policy: Policy, outside: Sequence[str]) -> str:
    """Return what became of all limits, and who is under none, in one line."""
    numbers = [(sum(each.fate is fate for each in of), words) for fate, words in _SAID.items()]
    said = [f"{count} {words}" for count, words in numbers if count]
    if caps := sum(entity.cap for entity in policy.limits):
        said.append(f"{counted(caps, 'cap')} left: none is recommended")
    return ", ".join([*said, *outside]) or "nothing to say"


def merged(present: Present, of: Sequence[Verdict], *, propose: bool = False) -> str:
    """Return the text of the file with what is to be changed, changed. Raises AnalysisError where it cannot be."""
    policy = present.policy
    limits: dict[Entity, dict[QuotaKind, float]] = {}
    proposed: dict[Entity, dict[QuotaKind, float]] = {}
    for each in of:
        if each.fate is Fate.CHANGE and each.need is not None:
            # What holds nobody is on trial already.
            as_proposal = propose and not policy.terms.get(each.entity, _PLAIN).shadow
            (proposed if as_proposal else limits).setdefault(each.entity, {})[each.kind] = each.need.quota
    try:
        text = edited(present.text, policy.limits, limits) if limits else present.text
        text = with_proposals(text, policy, proposed) if proposed else text
        after = parse(str(present.path), text).policy
    except ConfigError as error:
        said = "; ".join(map(str, error.problems))
        raise AnalysisError(
            f"{present.path}: what stands above cannot be written into it, and nothing is written: {said}"
        ) from None
    except ValueError:
        raise _uneditable(present.path) from None
    if after != _wanted(policy, limits, proposed):
        raise _uneditable(present.path)
    return text


def _wanted(
    policy: Policy,
    limits: Mapping[Entity, Mapping[QuotaKind, float]],
    proposed: Mapping[Entity, Mapping[QuotaKind, float]],
) -> Policy:
    terms = dict(policy.terms)
    for entity, of_entity in proposed.items():
        before = terms.get(entity, _PLAIN)
        terms[entity] = replace(before, proposed={**before.proposed, **of_entity})
    return Policy(
        {entity: {**before, **limits.get(entity, {})} for entity, before in policy.limits.items()}, terms, policy.groups
    )


def _uneditable(path: Path) -> AnalysisError:
    return AnalysisError(
        f"{path}: is written in a form that only people can edit: change it by hand, by what stands above"
    )
