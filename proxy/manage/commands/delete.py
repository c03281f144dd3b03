"""``sluice quotas delete``: remove some or all limits of an entity."""

import sys
from typing import Any

import click

from proxy.manage.altering import EntityChange, carry_out, problems_of, require_of_kafka
from proxy.manage.cli import EXIT_FAILED
from proxy.manage.entity_options import QuotaCommand, entity_options, removal_option
from proxy.manage.grammar import QuotaArguments
from proxy.manage.target import target_options
from proxy.manage.target_store import opened
from quotas.stores.base import StoreError


@click.command(cls=QuotaCommand, short_help="Remove limits.")
@target_options
@entity_options
@removal_option
@click.option("--dry-run", is_flag=True, help="Change nothing; print the limits that would go.")
def command(arguments: QuotaArguments, *, dry_run: bool, **target: Any) -> None:
    """Remove limits of users, client-ids and addresses: the named ones, or all of an entity's.

    \b
    sluice quotas delete --file quotas.yaml user=alice
    sluice quotas delete -c sluice.yaml user=alice producer_byte_rate

    Exit status: 0 if all was removed, 1 if anything was refused or not there, 2 for a wrong command line.
    """  # noqa: D301  \b is click's
    if arguments.added:
        raise click.UsageError(f"delete takes names of limits without values: {', '.join(arguments.added)}")
    entities = arguments.entities()
    with opened(**target) as (store, loaded):
        wanted = []
        for entity, named in zip(entities, arguments.targets, strict=True):
            require_of_kafka(entity)
            there = loaded.policy.limits.get(entity)
            if not there:
                unread = [f"; {problem}" for problem in problems_of(loaded, [entity])]
                raise StoreError(f"{entity.describe()} has no quota{''.join(unread)}")
            wanted.append(EntityChange(entity, dict.fromkeys(arguments.removed or map(str, there)), named))
        made = carry_out(store, loaded, wanted, dry_run=dry_run)
    if not made:
        sys.exit(EXIT_FAILED)
