"""``sluice quotas alter``: set and remove limits, as kafka-configs --alter does."""

import sys
from typing import Any

import click

from proxy.manage.altering import EntityChange, carry_out
from proxy.manage.cli import EXIT_FAILED
from proxy.manage.entity_options import QuotaCommand, entity_options, limit_options
from proxy.manage.grammar import QuotaArguments
from proxy.manage.target import target_options
from proxy.manage.target_store import opened


@click.command(cls=QuotaCommand, short_help="Set limits, and remove them.")
@target_options
@entity_options
@limit_options
@click.option("--dry-run", is_flag=True, help="Change nothing; print each limit, old → new.")
def command(arguments: QuotaArguments, *, dry_run: bool, **store_options: Any) -> None:
    """Set the limits of users, client-ids and addresses, and remove some.

    \b
    sluice quotas alter --file quotas.yaml user=alice producer_byte_rate=10MiB
    sluice quotas alter -c sluice.yaml --user alice --client-defaults --add-config request_percentage=50
    sluice quotas alter -c sluice.yaml --user alice --delete-config producer_byte_rate

    Exit status: 0 if all changes were made, 1 if any was refused, 2 for a wrong command line.
    """  # noqa: D301  \b is click's
    entities = arguments.entities()
    ops: dict[str, float | None] = {**dict.fromkeys(arguments.removed), **arguments.added}
    if not ops:
        raise click.UsageError("no limits given: add some, as in --add-config producer_byte_rate=1MiB")
    if both := arguments.added.keys() & set(arguments.removed):
        raise click.UsageError(f"{min(both)} is both set and removed; leave one of them out")
    wanted = [EntityChange(entity, ops, target) for entity, target in zip(entities, arguments.targets, strict=True)]
    with opened(**store_options) as (store, loaded):
        made = carry_out(store, loaded, wanted, dry_run=dry_run)
    if not made:
        sys.exit(EXIT_FAILED)
