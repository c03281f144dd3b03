"""Writes quotas as a quota file (docs/quotas.md), which can hold everything that Sluice supports: ``export``."""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click

from proxy.manage.target import EXIT_FAILED, StoreCommand, load_target, target_options, warn
from proxy.manage.wording import terms_written
from quotas.entities import Entity
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
    yield f"  - entity: {_braced(entity.as_data())}"
    for kind, limit in limits.items():
        yield f"    {kind}: {number(limit)}"
    for key, said in terms_written(terms).items():
        if isinstance(said, str):
            yield f"    {key}: {said}"
        elif proposed := [f"{kind}: {limit}" for kind, limit in said.items() if kind in limits]:
            yield f"    {key}: {{{', '.join(proposed)}}}"


def _braced(value: object) -> str:
    """Return what ``Entity.as_data`` says of an entity, as a quota file has it."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_braced(of)}' for key, of in value.items())}}}"
    return "true" if value is True else written_name(str(value))


@click.command("export", cls=StoreCommand, short_help="Print quotas as a quota file.")
@target_options
@click.option("--strict", is_flag=True, help="Print nothing if any quota cannot be read, or written into a quota file.")
def export(*, strict: bool, **target: Any) -> None:
    """Print all quotas, as a quota file. Quotas that cannot be read, or that a quota file cannot hold, are listed on
    stderr.

    \b
    sluice quotas export --zookeeper zk:2181 > quotas.yaml
    sluice quotas export --bootstrap-server broker:9092 > quotas.yaml

    Exit status: 0; with --strict 1 if anything was left out.
    """  # noqa: D301  \b is click's
    loaded = load_target(**target)
    warn(loaded.warnings)
    text, left_out = write(loaded.policy)
    for line in left_out:
        click.echo(f"left out: {line}", err=True)
    if strict and loaded.unread:
        click.echo(f"error: not all quotas could be read ({len(loaded.unread)} skipped)", err=True)
    if strict and left_out:
        click.echo(f"error: a quota file cannot hold all quotas ({len(left_out)} left out)", err=True)
    if strict and (left_out or loaded.unread):
        sys.exit(EXIT_FAILED)
    click.echo(text, nl=False)
