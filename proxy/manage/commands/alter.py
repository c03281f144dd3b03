"""``sluice quotas alter``: set and remove limits, as kafka-configs --alter does."""

import sys
from typing import Any

import click

from proxy.manage.altering import Wanted, carry_out
from proxy.manage.asking import AskingCommand, entity_options, limit_options
from proxy.manage.cli import EXIT_FAILED
from proxy.manage.grammar import Asked
from proxy.manage.seen import opened
from proxy.manage.target import target_options


@click.command(cls=AskingCommand, short_help="Set limits, and remove them.")
@target_options
@entity_options
@limit_options
@click.option("--dry-run", is_flag=True, help="Change nothing; print each limit, old → new.")
def command(asked: Asked, *, dry_run: bool, **store_options: Any) -> None:
    """Set the limits of users, client-ids and addresses, and remove some.

    \b
    sluice quotas alter --file quotas.yaml user=alice producer_byte_rate=10MiB
    sluice quotas alter -c sluice.yaml --user alice --client-defaults --add-config request_percentage=50
    sluice quotas alter -c sluice.yaml --user alice --delete-config producer_byte_rate

    Exit status: 0 if all was made, 1 if anything was refused, 2 for a wrong command line.
    """  # noqa: D301  \b is click's
    entities = asked.entities()
    ops: dict[str, float | None] = {**dict.fromkeys(asked.removed), **asked.added}
    if not ops:
        raise click.UsageError("which limits? Give some, as in --add-config producer_byte_rate=1MiB")
    if both := asked.added.keys() & set(asked.removed):
        raise click.UsageError(f"{min(both)} is to be set and to be removed; leave one of them out")
    wanted = [Wanted(entity, ops, target) for entity, target in zip(entities, asked.targets, strict=True)]
    with opened(**store_options) as (store, loaded):
        made = carry_out(store, loaded, wanted, dry_run=dry_run)
    if not made:
        sys.exit(EXIT_FAILED)
