"""Rules as they are read from a file of another tool: checked, with the place of each that is wrong."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from config.document import Document
from config.nodes import Mapping as Given
from config.nodes import Node, Scalar
from config.nodes import Sequence as Items
from config.problems import ConfigError, InvalidValue, Problem, Steps
from proxy.manage.grammar import limit
from quotas.entities import Default, Entity, Prefix
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from quotas.stores.alteration import Change, Refusal, check

Names = Mapping[str, str | Default | Prefix]
Limits = Sequence[tuple[str, str]]
"""Name of a quota → its limit, as they are written."""

DEFAULT: Final = Default.DEFAULT


class Rules:
    """Collects rules, and what is wrong with them."""

    def __init__(self) -> None:
        self.limits: dict[Entity, dict[QuotaKind, float]] = {}
        self.wrong: list[Problem] = []
        self.notes: list[Problem] = []
        self._places: dict[Entity, Callable[[InvalidValue], Problem]] = {}

    def add(self, names: Names, limits: Limits, problem: Callable[[InvalidValue], Problem]) -> None:
        """Add a rule, or what is wrong with it; ``problem`` says where that is."""
        try:
            entity, of_entity = self._checked(names, limits)
        except InvalidValue as invalid:
            self.wrong.append(problem(invalid))
            return
        if entity in self.limits:
            first = f"leave one of them out: the first is on line {self._places[entity](InvalidValue('')).line}"
            self.wrong.append(problem(InvalidValue(f"{entity.describe()} has a quota already", first)))
            return
        self.limits[entity] = of_entity
        self._places[entity] = problem  # and not the line: it takes a look at the whole file to find one

    def policy(self) -> tuple[Policy, Sequence[Problem]]:
        """Return the rules, and what is doubtful. Raises ConfigError with all that is wrong."""
        if self.wrong:
            raise ConfigError(self.wrong)
        return Policy({entity: limits for entity, limits in self.limits.items() if limits}), self.notes

    @staticmethod
    def _checked(names: Names, limits: Limits) -> tuple[Entity, dict[QuotaKind, float]]:
        ops = [(key, limit(key, text)) for key, text in limits]
        # A prefix is checked as a client-id: Kafka has none, and the same limits hold for it.
        plain = {kind: name.text if isinstance(name, Prefix) else name for kind, name in names.items()}
        found = check(Change(plain, list(ops)))
        if isinstance(found, Refusal):
            raise InvalidValue(f"{found.field}: {found.message}", found.fix)
        entity, of_entity = found
        prefix = names.get("client-id")
        if isinstance(prefix, Prefix):
            try:
                entity = Entity(entity.user, prefix)
            except ValueError as error:
                raise InvalidValue(str(error)) from None
        return entity, {kind: value for kind, value in of_entity.items() if value is not None}


def at(document: Document, steps: Steps, line: int = 0) -> Callable[[InvalidValue], Problem]:
    """Return what says where something in a document is wrong; the document begins behind ``line`` lines of a file."""

    def problem(invalid: InvalidValue) -> Problem:
        found = document.problem(steps, invalid)
        return replace(found, line=found.line + line)

    return problem


def text(node: Node, what: str) -> str:
    """Return a text. Raises InvalidValue."""
    if not isinstance(node, Scalar):
        raise InvalidValue(f"{what} must be a single value")
    return str(node)


def items(node: Node, what: str) -> Items:
    """Return a list; none is an empty one. Raises InvalidValue."""
    if node is None:
        return Items()
    if not isinstance(node, Items):
        raise InvalidValue(f"{what} must be a list")
    return node


def given(node: Node, what: str) -> Given:
    """Return a mapping; none is an empty one. Raises InvalidValue."""
    if node is None:
        return Given()
    if not isinstance(node, Given):
        raise InvalidValue(f"{what} must be a mapping")
    return node
