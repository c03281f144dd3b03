"""Layered stores: the first that names an entity wins, kind by kind (docs/decisions/0023)."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from config.problems import Problem
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy, Terms
from quotas.stores.alteration import Alteration, Limits, Outcome, Refusal
from quotas.stores.base import ChangedMeanwhileError, Loaded, QuotaStore, UnreadableError

_OVER: Final = " over "


@dataclass(frozen=True, slots=True)
class Layers(Loaded):
    """The merged content of all layers; ``parts`` is the content of each."""

    parts: Sequence[Loaded] = ()

    def where(self, entity: Entity, kind: QuotaKind | None = None) -> str:
        """As in Loaded; without a kind, all places that set a limit of the entity."""
        left, found = set(self.policy.limits[entity]), []
        for part in self.parts:
            wins = left & part.policy.limits.get(entity, {}).keys()
            left -= wins
            if wins and (kind is None or kind in wins):
                found.append(part.where(entity))
        return ", ".join(found)


class LayeredStore(QuotaStore):
    """Several stores, the uppermost first. Changes go to the last one, the base.

    If a layer cannot be read, its last known content applies, and the others are updated.
    """

    def __init__(self, layers: Sequence[QuotaStore]) -> None:
        super().__init__()
        self._layers = tuple(layers)
        self._base = self._layers[-1]
        self._held: list[Loaded | None] = [None] * len(self._layers)
        """The content of each layer at its last successful load."""
        self._due = [True] * len(self._layers)
        """The layers that have changed."""

    @property
    def answers_clients(self) -> bool:
        return self._base.answers_clients

    def nudge(self) -> None:
        self._base.nudge()

    def changed(self) -> bool:
        for index, layer in enumerate(self._layers):
            if layer.changed():
                self._due[index] = True
        return any(self._due)

    def close(self) -> None:
        for layer in self._layers:
            layer.close()

    def _load(self) -> Loaded:
        # A load without a change, such as a manual reload, reads all layers.
        due = [*self._due] if any(self._due) else [True] * len(self._layers)
        problems: list[Problem] = []
        away = True
        for index, layer in enumerate(self._layers):
            if due[index] or self._held[index] is None:
                self._due[index] = False
                try:
                    self._held[index] = layer.load(0)  # nobody asks a layer for its staleness
                except UnreadableError as error:
                    problems += error.problems
                    away = away and error.away
        held = [each for each in self._held if each is not None]
        if len(held) < len(self._layers):
            raise UnreadableError(problems, away=away)
        loaded = _merged(held)
        if problems:
            raise UnreadableError(problems, loaded, away=away)
        return loaded

    def write(self, wanted: Mapping[Entity, Limits], alteration: Alteration) -> Mapping[Entity, Outcome]:
        try:
            loaded = self._load()
        finally:
            self._due = [True] * len(self._layers)  # in force with the next load only
        if alteration.version not in (None, loaded.version):
            raise ChangedMeanwhileError(f"{loaded.source}: has been changed: load it and try again")
        *above, base = self._held
        outcomes: dict[Entity, Outcome] = {}
        for entity, limits in wanted.items():
            if (hidden := _hidden(entity, limits, above)) is not None:
                outcomes[entity] = Outcome(hidden)
        below = {entity: limits for entity, limits in wanted.items() if entity not in outcomes}
        if below:
            version = None if base is None or alteration.version is None else base.version
            outcomes |= self._base.write(below, replace(alteration, version=version))
        return outcomes


def _hidden(entity: Entity, limits: Limits, above: Sequence[Loaded | None]) -> Refusal | None:
    """Return why a change would have no effect: a layer above sets the limit."""
    for layer in above:
        for kind in limits:
            if layer is not None and kind in layer.policy.limits.get(entity, {}):
                where = layer.where(entity)
                return Refusal(kind.value, f"is set for {entity.describe()} at {where}, which wins", "change it there")
    return None


def _merged(parts: Sequence[Loaded]) -> Loaded:
    """Merge the layers. Raises UnreadableError if they contradict each other."""
    limits: dict[Entity, dict[QuotaKind, float]] = {}
    said_of: dict[Entity, tuple[Terms, Mapping[QuotaKind, float]]] = {}
    groups: dict[str, Sequence[str]] = {}
    problems: list[Problem] = []
    source = _OVER.join(part.source for part in parts)
    for part in parts:
        problems += [
            _problem(part.source, f"groups.{name}", "is also a group of a layer above", "keep one of them")
            for name in part.policy.groups
            if name in groups
        ]
        groups |= part.policy.groups
        for entity, of in part.policy.limits.items():
            here = limits.setdefault(entity, {})
            new = {kind: limit for kind, limit in of.items() if kind not in here}
            here |= new
            if not new or entity not in part.policy.terms:
                continue
            if entity in said_of:
                said = "also has terms in a layer above"
                problems.append(_problem(part.where(entity), entity.describe(), said, "write them in one layer"))
            said_of[entity] = part.policy.terms[entity], new
    terms = {entity: _terms_for(said, of, limits[entity]) for entity, (said, of) in said_of.items()}
    try:
        policy = Policy(limits, terms, groups)
    except ValueError as error:  # a user is in two groups
        problems.append(_problem(source, "", str(error), "leave it in one of them"))
    if problems:
        raise UnreadableError(problems)
    return Layers(
        policy,
        hashlib.sha256("\n".join(part.version for part in parts).encode()).hexdigest(),
        source,
        dict.fromkeys(limits, ""),
        [warning for part in parts for warning in part.warnings],
        [unread for part in parts for unread in part.unread],
        parts=parts,
    )


def _terms_for(terms: Terms, kinds: Mapping[QuotaKind, float], among: Mapping[QuotaKind, float]) -> Terms:
    """Return the terms restricted to these kinds: a lower layer's terms do not apply to kinds of an upper one."""
    proposed = {kind: limit for kind, limit in terms.proposed.items() if kind in kinds}
    return replace(terms, proposed=proposed, only=None if len(kinds) == len(among) else tuple(kinds))


def _problem(file: str, path: str, message: str, hint: str) -> Problem:
    return Problem(file, 0, 0, path, message, hint)
