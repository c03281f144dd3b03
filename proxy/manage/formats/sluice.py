"""Sluice's own quota file (docs/quotas.md), which can say all that there is."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from config.problems import Problem
from proxy.manage.formats.rules import Rule
from proxy.manage.wording import names, terms_written
from quotas.entities import Default, Entity, Group, Prefix
from quotas.policy import Policy
from quotas.stores import file
from quotas.stores.edit import number, written_name

_ROOT: Final = re.compile(r"^[\"']?(?:quotas|caps)[\"']?\s*:", re.MULTILINE)


def is_quota_file(text: str) -> bool:
    """Whether a text looks like one."""
    return _ROOT.search(text) is not None or text.lstrip().startswith("{")


def read(source: str, text: str) -> tuple[Policy, Sequence[Problem]]:
    """Return the quotas of a quota file, and what is doubtful. Raises ConfigError."""
    loaded = file.parse(source, text)
    return loaded.policy, loaded.warnings


def write(rules: Sequence[Rule], policy: Policy) -> str:
    """Return a quota file of all rules, with the groups of the policy."""
    lines: list[str] = []
    if policy.groups:
        lines.append("groups:")
        for group, users in policy.groups.items():
            lines.append(f"  {written_name(group)}: [{', '.join(map(written_name, users))}]")
    for section, cap in (("quotas", False), ("caps", True)):
        of_section = [rule for rule in rules if rule.entity.cap == cap]
        if of_section:
            lines += (f"{section}:", *(line for rule in of_section for line in _lines(rule)))
        elif not cap:
            lines.append("quotas: []")
    return "".join(f"{line}\n" for line in lines)


def refuse_limit(key: str, limit: float) -> str:  # noqa: ARG001  the same for all
    """Return why a quota file cannot hold a limit."""
    if not limit > 0:
        return "is not above 0: leave it out for no limit"
    return "has more digits than a quota file takes (19, and 9 decimals)" if number(limit) is None else ""


def _lines(rule: Rule) -> Iterator[str]:
    yield f"  - entity: {_entity(rule.entity)}"
    for kind, limit in rule.limits.items():
        yield f"    {kind}: {number(float(limit))}"
    for key, said in terms_written(rule.terms).items():
        if isinstance(said, str):
            yield f"    {key}: {said}"
        elif proposed := [f"{kind}: {limit}" for kind, limit in said.items() if kind in rule.limits]:
            yield f"    {key}: {{{', '.join(proposed)}}}"


def _entity(entity: Entity) -> str:
    parts = []
    for kind, name in names(entity).items():
        match name:
            case Default():
                parts.append(f"{kind}: {{default: true}}")
            case Group(group):
                parts.append(f"user-group: {written_name(group)}")
            case Prefix(prefix):
                parts.append(f"{kind}: {{prefix: {written_name(prefix)}}}")
            case _:
                parts.append(f"{kind}: {written_name(str(name))}")
    return f"{{{', '.join(parts)}}}"
