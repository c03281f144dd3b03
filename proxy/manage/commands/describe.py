"""``sluice quotas describe``: show configured quotas, in the words of kafka-configs."""

import json
import sys
from typing import Any

import click

from proxy.manage.cli import EXIT_FAILED
from proxy.manage.entity_options import QuotaCommand, entity_options
from proxy.manage.grammar import QuotaArguments
from proxy.manage.listing import as_data, as_table, as_text, select, unread_among
from proxy.manage.target import target_options
from proxy.manage.target_store import load_target
from quotas.stores.filters import FilterError


@click.command(cls=QuotaCommand, short_help="Show quotas.")
@target_options
@entity_options
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "table", "json"]),
    default="text",
    help="text: as kafka-configs. The others also show where each quota is defined.",
)
@click.option("--strict", is_flag=True, help=f"Exit {EXIT_FAILED} if a requested quota could not be read.")
def command(arguments: QuotaArguments, output: str, *, strict: bool, **target: Any) -> None:
    """Show the quotas that are configured: all, or exactly those of the named entities.

    \b
    sluice quotas describe --file quotas.yaml -o table
    sluice quotas describe -c sluice.yaml --user alice
    sluice quotas describe -c sluice.yaml user client-id     (all pairs)
    """  # noqa: D301  \b is click's
    if arguments.added or arguments.removed:
        raise click.UsageError("limits are for alter; name users, client-ids or addresses")
    loaded = load_target(**target)
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}", err=True)
    try:
        listed, unread = select(loaded, arguments), unread_among(loaded, arguments)
    except FilterError as error:
        raise click.UsageError(str(error)) from None
    if output == "json":
        click.echo(json.dumps(as_data(loaded, listed), indent=2))
    else:
        for line in as_table(listed) if output == "table" else as_text(listed):
            click.echo(line)
    if strict and unread:
        click.echo(f"error: not all quotas could be read ({len(unread)} skipped)", err=True)
        sys.exit(EXIT_FAILED)
