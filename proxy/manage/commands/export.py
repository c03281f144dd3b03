"""``sluice quotas export``: all quotas of a store, as another tool takes them."""

import sys
from typing import Any

import click

from proxy.manage.cli import EXIT_FAILED
from proxy.manage.formats.known import FORMATS, write
from proxy.manage.seen import seen
from proxy.manage.target import target_options


@click.command(short_help="Print quotas for another tool.")
@target_options
@click.option(
    "-f",
    "--format",
    "name",
    type=click.Choice(list(FORMATS)),
    default="sluice",
    help="A quota file; a script of kafka-configs; KafkaUsers of Strimzi; what rpk imports; a .tf.json of Terraform.",
)
@click.option("--strict", is_flag=True, help="Print nothing if not all of it can be read, or said in the format.")
def command(name: str, *, strict: bool, **target: Any) -> None:
    """Print all quotas, as a file that Sluice or another tool takes. What that cannot say is named on stderr, and so is
    what the store holds and nobody can read.

    \b
    sluice quotas export --zookeeper zk:2181 > quotas.yaml
    sluice quotas export -c sluice.yaml --format kafka-configs > quotas.sh

    Exit status: 0, or 1 if quotas could not be read, or not all be said and --strict was given.
    """  # noqa: D301  \b is click's
    loaded = seen(**target)
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}", err=True)
    text, left_out = write(loaded.policy, name)
    for line in left_out:
        click.echo(f"left out: {line}", err=True)
    if strict and loaded.unread:
        click.echo(f"error: not all of it could be read ({len(loaded.unread)} skipped)", err=True)
    if strict and left_out:
        click.echo(f"error: {name} cannot say all of it ({len(left_out)} left out)", err=True)
    if strict and (left_out or loaded.unread):
        sys.exit(EXIT_FAILED)
    click.echo(text, nl=False)
