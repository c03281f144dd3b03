"""``sluice quotas export``: all quotas of a store, as a quota file."""

import sys
from typing import Any

import click

from proxy.manage.cli import EXIT_FAILED
from proxy.manage.quota_file import write
from proxy.manage.target import target_options
from proxy.manage.target_store import load_target


@click.command(short_help="Print quotas as a quota file.")
@target_options
@click.option("--strict", is_flag=True, help="Print nothing if any quota cannot be read, or written into a quota file.")
def command(*, strict: bool, **target: Any) -> None:
    """Print all quotas, as a quota file. Quotas that cannot be read, or that a quota file cannot hold, are listed on
    stderr.

    \b
    sluice quotas export --zookeeper zk:2181 > quotas.yaml
    sluice quotas export --bootstrap-server broker:9092 > quotas.yaml

    Exit status: 0; with --strict 1 if anything was left out.
    """  # noqa: D301  \b is click's
    loaded = load_target(**target)
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}", err=True)
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
