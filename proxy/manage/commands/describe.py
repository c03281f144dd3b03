"""``sluice quotas describe``: the quotas that are configured, in the words of kafka-configs."""

import json
import sys
from typing import Any

import click

from proxy.manage.asking import AskingCommand, entity_options
from proxy.manage.cli import EXIT_FAILED
from proxy.manage.grammar import Asked
from proxy.manage.listing import as_data, as_table, as_text, select, unread_among
from proxy.manage.seen import seen
from proxy.manage.target import target_options
from quotas.stores.filters import FilterError


@click.command(cls=AskingCommand, short_help="Show quotas.")
@target_options
@entity_options
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "table", "json"]),
    default="text",
    help="text: as kafka-configs. The others also say where each quota stands.",
)
@click.option("--strict", is_flag=True, help=f"Exit {EXIT_FAILED} if something asked for could not be read.")
def command(asked: Asked, output: str, *, strict: bool, **target: Any) -> None:
    """Show the quotas that are configured: all, or those of the entities that are named, and no others.

    \b
    sluice quotas describe --file quotas.yaml -o table
    sluice quotas describe -c sluice.yaml --user alice
    sluice quotas describe -c sluice.yaml user client-id     (all pairs)
    """  # noqa: D301  \b is click's
    if asked.added or asked.removed:
        raise click.UsageError("limits are for alter; name users, client-ids or addresses")
    loaded = seen(**target)
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}", err=True)
    try:
        listed, unread = select(loaded, asked), unread_among(loaded, asked)
    except FilterError as error:
        raise click.UsageError(str(error)) from None
    if output == "json":
        click.echo(json.dumps(as_data(loaded, listed), indent=2))
    else:
        for line in as_table(listed) if output == "table" else as_text(listed):
            click.echo(line)
    if strict and unread:
        click.echo(f"error: not all of it could be read ({len(unread)} skipped)", err=True)
        sys.exit(EXIT_FAILED)
