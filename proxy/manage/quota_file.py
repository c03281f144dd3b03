"""Writes quotas as a quota file (docs/quotas.md), which can hold everything that Sluice supports."""

from collections.abc import Iterator, Mapping

from proxy.manage.wording import names, terms_written
from quotas.entities import Default, Entity, Group, Prefix
from quotas.kinds import QuotaKind
from quotas.policy import Policy, Terms
from quotas.stores.edit import number, written_name
from quotas.stores.unlimited import taken_over


def write(policy: Policy) -> tuple[str, list[str]]:
    """Return a quota file, and messages about limits that it cannot hold."""
    left_out: list[str] = []
    sections: dict[str, list[str]] = {"quotas": [], "caps": []}
    for entity, of_entity in policy.limits.items():
        limits = {kind: float(taken_over(kind, limit)) for kind, limit in of_entity.items()}
        refused = {kind: why for kind, limit in limits.items() if (why := _refused(limit))}
        left_out += (f"{entity.describe()}: {kind} {limits[kind]:.17g} {why}" for kind, why in refused.items())
        if said := {kind: limit for kind, limit in limits.items() if kind not in refused}:
            sections["caps" if entity.cap else "quotas"] += _rule(entity, said, policy.terms.get(entity, Terms()))
    lines = ["groups:"] if policy.groups else []
    for group, users in policy.groups.items():
        lines.append(f"  {written_name(group)}: [{', '.join(map(written_name, users))}]")
    lines += ["quotas:", *sections["quotas"]] if sections["quotas"] else ["quotas: []"]
    lines += ["caps:", *sections["caps"]] if sections["caps"] else []
    return "".join(f"{line}\n" for line in lines), left_out


def _refused(limit: float) -> str:
    """Return why a quota file cannot hold a limit; "" if it can."""
    if not limit > 0:
        return "is not above 0: leave it out for no limit"
    return "has more digits than a quota file takes (19, and 9 decimals)" if number(limit) is None else ""


def _rule(entity: Entity, limits: Mapping[QuotaKind, float], terms: Terms) -> Iterator[str]:
    yield f"  - entity: {_entity(entity)}"
    for kind, limit in limits.items():
        yield f"    {kind}: {number(limit)}"
    for key, said in terms_written(terms).items():
        if isinstance(said, str):
            yield f"    {key}: {said}"
        elif proposed := [f"{kind}: {limit}" for kind, limit in said.items() if kind in limits]:
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
