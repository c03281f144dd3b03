"""``sluice quotas delete``: remove limits, or all those of an entity."""

import sys
from typing import Any

import click

from proxy.manage.altering import Wanted, carry_out, problems_of, require_of_kafka
from proxy.manage.asking import AskingCommand, entity_options, removal_option
from proxy.manage.cli import EXIT_FAILED
from proxy.manage.grammar import Asked
from proxy.manage.seen import opened
from proxy.manage.target import target_options
from quotas.stores.base import StoreError


@click.command(cls=AskingCommand, short_help="Remove limits.")
@target_options
@entity_options
@removal_option
@click.option("--dry-run", is_flag=True, help="Change nothing; print the limits that would go.")
def command(asked: Asked, *, dry_run: bool, **target: Any) -> None:
    """Remove limits of users, client-ids and addresses: those that are named, or all that an entity has.

    \b
    sluice quotas delete --file quotas.yaml user=alice
    sluice quotas delete -c sluice.yaml user=alice producer_byte_rate

    Exit status: 0 if all was removed, 1 if anything was refused or not there, 2 for a wrong command line.
    """  # noqa: D301  \b is click's
    if asked.added:
        raise click.UsageError(f"delete takes names of limits without values: {', '.join(asked.added)}")
    entities = asked.entities()
    with opened(**target) as (store, loaded):
        wanted = []
        for entity, named in zip(entities, asked.targets, strict=True):
            require_of_kafka(entity)
            there = loaded.policy.limits.get(entity)
            if not there:
                unread = [f"; {problem}" for problem in problems_of(loaded, [entity])]
                raise StoreError(f"{entity.describe()} has no quota{''.join(unread)}")
            wanted.append(Wanted(entity, dict.fromkeys(asked.removed or map(str, there)), named))
        made = carry_out(store, loaded, wanted, dry_run=dry_run)
    if not made:
        sys.exit(EXIT_FAILED)
