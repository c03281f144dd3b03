"""The present quota file with recommended limits; everything else in it stays.

No rule is added: it would take clients away from another rule.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from analysis.errors import AnalysisError
from analysis.recommend.proposals import with_proposals
from analysis.recommend.verdicts import Fate, LimitVerdict
from config.document import read_text
from config.problems import ConfigError
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy, Terms
from quotas.stores.edit import edited
from quotas.stores.file import LoadedPolicy, parse

_PLAIN: Final = Terms()


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
        """Whether the file still has the text that was read."""
        try:
            return read_text(self.path) == self.text
        except ConfigError:
            return False


def read(path: Path) -> Present:
    """Return the quotas of a file. Raises ConfigError."""
    text = read_text(path)
    return Present(path, text, parse(str(path), text))


def merged(present: Present, of: Sequence[LimitVerdict], *, propose: bool = False) -> str:
    """Return the text of the file with its limits changed. Raises AnalysisError if its form cannot be edited."""
    policy = present.policy
    limits: dict[Entity, dict[QuotaKind, float]] = {}
    proposed: dict[Entity, dict[QuotaKind, float]] = {}
    for each in of:
        if each.fate is Fate.CHANGE and each.need is not None:
            # A limit in shadow is not enforced: it is changed itself.
            as_proposal = propose and not policy.terms.get(each.entity, _PLAIN).shadow
            (proposed if as_proposal else limits).setdefault(each.entity, {})[each.kind] = each.need.limit
    try:
        text = edited(present.text, policy.limits, limits) if limits else present.text
        text = with_proposals(text, policy, proposed) if proposed else text
        after = parse(str(present.path), text).policy
    except ConfigError as error:
        said = "; ".join(map(str, error.problems))
        raise AnalysisError(
            f"{present.path}: the limits above cannot be written into it, and nothing is written: {said}"
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
    return AnalysisError(f"{path}: its form cannot be edited automatically: change it by hand, by the lines above")
