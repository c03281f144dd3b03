"""Which limit holds for a client, by the tables of docs/quotas.md: written from them alone, and slowly.

Rules are (user, client-id) → what stands there. A user is ``None`` (no part of the rule), ``"*"`` (the default),
``"name:alice"`` or ``"group:analytics"``; a client-id likewise, or ``"prefix:team-"``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Part = str | None
Names = tuple[Part, Part]


@dataclass(frozen=True)
class Written:
    """A rule: its limit, whether it is in shadow, what is proposed, and (of a prefix) whether it is shared."""

    limit: float
    shadow: bool = False
    proposed: float | None = None
    shared: bool = True


@dataclass(frozen=True)
class Holds:
    """What holds for a client: the rule's names, what is in force, what is only measured, and whose counter it is."""

    names: Names
    in_force: float | None
    measured: float | None
    counter: Names


def _client_ids(rules: Mapping[Names, Written], client_id: str) -> list[Part]:
    if not client_id:
        return []
    prefixes = {part for _, part in rules if part is not None and part.startswith("prefix:")}
    fitting = [prefix for prefix in prefixes if client_id.startswith(prefix.removeprefix("prefix:"))]
    return [f"name:{client_id}", *sorted(fitting, key=len, reverse=True), "*"]


def _rows(rules: Mapping[Names, Written], user: str, group: str | None, client_id: str) -> list[Names]:
    users: list[Part] = [f"name:{user}", *([f"group:{group}"] if group else []), "*"]
    found: list[Names] = [(name, each) for name in users for each in [*_client_ids(rules, client_id), None]]
    return found + [(None, each) for each in _client_ids(rules, client_id)]


def _holds(rules: Mapping[Names, Written], names: Names, user: str, client_id: str) -> Holds:
    rule = rules[names]
    of_user = names[0] if names[0] is None or names[0].startswith("group:") else f"name:{user}"
    of_client_id = names[1]
    if of_client_id is not None and not (of_client_id.startswith("prefix:") and rule.shared):
        of_client_id = f"name:{client_id}"
    in_force = None if rule.shadow else rule.limit
    return Holds(names, in_force, rule.limit if rule.shadow else rule.proposed, (of_user, of_client_id))


def winner(rules: Mapping[Names, Written], user: str, group: str | None, client_id: str) -> Holds | None:
    """Return what the first level present says."""
    for names in _rows(rules, user, group, client_id):
        if names in rules:
            return _holds(rules, names, user, client_id)
    return None


def caps(rules: Mapping[Names, Written], user: str, group: str | None, client_id: str) -> Sequence[Holds]:
    """Return all that hold: of two with the same counter the narrower one."""
    found: dict[Names, Holds] = {}
    for names in _rows(rules, user, group, client_id):
        if names in rules:
            holds = _holds(rules, names, user, client_id)
            found.setdefault(holds.counter, holds)
    return list(found.values())
