"""``sluice quotas import``: take over quotas from a quota file, a cluster or a ZooKeeper into a store."""

import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import click

from config.document import read_text
from config.files import MAX_FILE_BYTES
from config.problems import ConfigError, Problem
from proxy.manage.altering import alter, refusals, report
from proxy.manage.cli import EXIT_FAILED
from proxy.manage.importing import plan
from proxy.manage.target import open_source, source_options, target_options
from proxy.manage.target_store import opened
from proxy.runtime.clock import now_ms
from quotas.policy import Policy
from quotas.stores.base import StoreError, UnreadableEntry
from quotas.stores.file import parse

_STDIN: Final = "-"


@click.command(short_help="Take over quotas from a cluster, a ZooKeeper or a file.")
@click.argument("source", metavar="[FILE]", required=False)
@source_options
@target_options
@click.option("--replace", is_flag=True, help="Remove quotas that are not in the source; by default they stay.")
@click.option("--strict", is_flag=True, help="Change nothing unless the whole source can be imported.")
@click.option("--dry-run", is_flag=True, help="Change nothing; print each limit, old → new.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def command(source: str | None, **options: Any) -> None:
    """Take over the quotas of a cluster, of a ZooKeeper, or of a quota file (- is stdin), into a store. It shows what
    changes, and asks.

    \b
    sluice quotas import --from cluster --config sluice.yaml
    sluice quotas import --from zookeeper --from-address zk:2181/kafka --file quotas.yaml
    sluice quotas import quotas.yaml --bootstrap-server broker:9092 --replace

    Exit status: 0 if all was imported, or you declined; 1 if anything was refused; 2 for an invalid file.
    """  # noqa: D301  \b is click's
    replace, strict, dry_run, yes = (options.pop(flag) for flag in ("replace", "strict", "dry_run", "yes"))
    coming, unread = _coming(source, options)
    if replace and source is None and not any(coming.limits.values()):
        fix = "if that is intended, import a quota file with `quotas: []`"
        raise StoreError(f"the source has no quotas, and --replace would remove all: {fix}")
    with opened(**options) as (store, loaded):
        found = plan(coming, loaded.policy, replace=replace, unread={each.entity for each in unread})
        left_out = found.left_out + [f"{each.problem}: it stays" for each in loaded.unread if replace]
        for line in left_out:
            click.echo(f"left out: {line}", err=True)
        outcomes = alter(store, loaded, found.wanted, dry_run=True)
        complete = report(found.wanted, outcomes, dry_run=True)
        if strict and (unread or left_out or not complete):
            click.echo("error: not all of it can be imported; nothing was changed", err=True)
            sys.exit(EXIT_FAILED)
        wanted = [each for each, outcome in zip(found.wanted, outcomes, strict=True) if outcome.altered]
        if not wanted:
            click.echo("nothing to change")
        elif not dry_run:
            if not (yes or _agreed(source, len(wanted))):
                click.echo("nothing has been changed")
                return
            made = alter(store, loaded, wanted, dry_run=False)
            complete = not refusals(wanted, made) and complete
            click.echo(f"{_entities(sum(outcome.refused is None for outcome in made))} changed")
    if not complete:
        sys.exit(EXIT_FAILED)


def _coming(source: str | None, options: dict[str, Any]) -> tuple[Policy, Sequence[UnreadableEntry]]:
    """Pop the source's options from ``options``; return its quotas, and those that could not be read."""
    kind, address, config = (options.pop(f"source_{each}") for each in ("kind", "address", "config"))
    if (source is None) == (kind is None):
        raise click.UsageError("give a source: --from cluster, --from zookeeper or a quota FILE")
    if source is not None:
        if address is not None or config is not None:
            raise click.UsageError("--from-address and --from-command-config are for --from cluster | zookeeper")
        file = str(source) if source != _STDIN else "stdin"
        given = parse(file, _stdin() if source == _STDIN else read_text(Path(source), pipes=True))
        _warn(given.warnings)
        return given.policy, ()
    with closing(open_source(kind, address, config, of=options["config_path"])) as store:
        held = store.load(now_ms())
    _warn(held.warnings)
    return held.policy, held.unread


def _warn(warnings: Sequence[Problem]) -> None:
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)


def _stdin() -> str:
    raw = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
    if len(raw) > MAX_FILE_BYTES:
        fix = "is it the right file?"
        raise ConfigError([Problem("stdin", 0, 0, "", f"is larger than {MAX_FILE_BYTES // 1024**2} MiB", fix)])
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ConfigError([Problem("stdin", 0, 0, "", "is not UTF-8", "save it as UTF-8")]) from None


def _agreed(source: str | None, entities: int) -> bool:
    if source == _STDIN:
        raise click.UsageError(
            "the quotas come from stdin, which cannot answer: give --yes, or --dry-run to look first"
        )
    return click.confirm(f"Make these changes ({_entities(entities)})?")


def _entities(count: int) -> str:
    return f"{count} {'entity' if count == 1 else 'entities'}"
