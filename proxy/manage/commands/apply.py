"""``sluice quotas apply``: bring a target's quotas in line with a file."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from proxy.manage import record
from proxy.manage.altering import EntityChange, alter
from proxy.manage.planning import EXIT_FAILED, Comparison, desired_options, read_sides
from proxy.manage.target_store import failing_with, opened
from proxy.manage.threeway import Action, Difference, now_applied
from quotas.entities import Entity
from quotas.stores.base import QuotaStore

EXIT_REFUSED: Final = 1


@click.command(short_help="Bring quotas in line with a file.")
@desired_options
@click.option("--dry-run", is_flag=True, help="Have the target validate everything; change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--force", is_flag=True, help="Also overwrite limits that someone else has changed since they were applied."
)
def command(
    desired: Path,
    last_applied: Path | None,
    *,
    dry_run: bool,
    yes: bool,
    force: bool,
    skip_extras: bool,
    **target: Any,
) -> None:
    """Bring a target's quotas in line with a quota file, DESIRED.

    It prints the output of `sluice quotas diff`, asks, and makes just those changes. The applied quotas are recorded,
    so that a quota taken out of DESIRED is removed the next time, and one that someone else has added stays. To roll
    back, apply an older DESIRED.

    \b
    sluice quotas apply quotas.yaml --bootstrap-server broker:9092
    sluice quotas apply quotas.yaml --zookeeper zk:2181 --last-applied production.applied.yaml --yes

    Exit status: 0 if the target is as desired, 1 if anything was refused or you declined, 2 for an error.
    """  # noqa: D301  \b is click's
    with failing_with(EXIT_FAILED), opened(**target) as (store, live):
        found = read_sides(desired, last_applied, live)
        click.echo("\n".join([*found.lines(), found.summary()]))
        if why := _refused(found, force=force, skip_extras=skip_extras):
            click.echo(f"nothing was applied: {why}", err=True)
            sys.exit(EXIT_REFUSED)
        to_make = found.plan.to_make + found.plan.of(Action.CONFLICT)
        if not dry_run:
            record.require_writable(found.last)
            if to_make and not yes:
                _ask(len(to_make), live.source)
        refused = _alter(store, found, to_make, dry_run=dry_run) if to_make else {}
        for entity, reason in refused.items():
            click.echo(f"refused: {entity.describe()}: {reason}", err=True)
        made = sum(each.entity not in refused for each in to_make)
        if dry_run:
            click.echo(f"{live.source}: {made} of {len(to_make)} would be made; nothing was changed")
        else:
            _record(found, {*refused, *(each.entity for each in found.plan.beyond)})
            click.echo(f"{live.source}: {made} of {len(to_make)} made")
        sys.exit(EXIT_REFUSED if refused else 0)


def _refused(found: Comparison, *, force: bool, skip_extras: bool) -> str:
    if found.plan.beyond and not skip_extras:
        return "rules marked x cannot be applied; take them out of the file, or skip them with --skip-extras"
    if found.plan.of(Action.CONFLICT) and not force:
        return "conflicts are marked !; copy the live value into the file, or overwrite it with --force"
    return ""


def _ask(number: int, source: str) -> None:
    try:
        click.confirm(f"make {number} change{'' if number == 1 else 's'} at {source}?", abort=True)
    except click.Abort:
        click.echo("\nnothing was applied; pass --yes if nobody can answer", err=True)
        sys.exit(EXIT_REFUSED)


def _alter(store: QuotaStore, found: Comparison, to_make: Sequence[Difference], *, dry_run: bool) -> dict[Entity, str]:
    """Make the changes; return why the target has refused which of them. Raises StoreError."""
    limits: dict[Entity, dict[str, float | None]] = {}
    for each in to_make:
        limits.setdefault(each.entity, {})[each.kind.value] = each.desired
    wanted = [EntityChange(entity, of_entity) for entity, of_entity in limits.items()]
    outcomes = zip(limits, alter(store, found.live, wanted, dry_run=dry_run), strict=True)
    return {entity: str(outcome.refused) for entity, outcome in outcomes if outcome.refused is not None}


def _record(found: Comparison, refused: set[Entity]) -> None:
    if not found.last.is_ours:
        click.echo(f"{found.last.path} was not written by apply: it is left unchanged", err=True)
        return
    applied = now_applied(found.desired, found.live.policy, found.last.policy, refused)
    record.write(found.last, found.live.source, applied)
