"""``sluice quotas import``: takes over quotas from a quota file, a cluster or a ZooKeeper into a store."""

import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from config.document import read_text, text_of
from config.files import MAX_FILE_BYTES
from config.problems import ConfigError, Problem
from proxy.live.options import file_option
from proxy.manage.changing import EntityChange, make, refusals, report
from proxy.manage.target import EXIT_FAILED, StoreCommand, open_source, opened, target_options, warn
from proxy.manage.wording import beyond_kafka, has_cut_name, terms_written
from proxy.runtime.clock import now_ms
from quotas.entities import Entity, Group
from quotas.kinds import QuotaKind
from quotas.policy import Policy, Terms
from quotas.stores.alteration import Refusal, check
from quotas.stores.base import StoreError, UnreadableEntry
from quotas.stores.file import parse
from quotas.stores.unlimited import taken_over

_STDIN: Final = "-"
_NO_TERMS: Final = Terms()


@dataclass(frozen=True, slots=True)
class Import:
    """The changes to make, and messages about quotas that cannot be imported."""

    wanted: Sequence[EntityChange]
    left_out: list[str]


def plan(coming: Policy, there: Policy, *, replace: bool, unread: Collection[Entity | None] = ()) -> Import:
    """Return the changes that add ``coming`` to the quotas in ``there``, or (``replace``) make them equal to it.

    Only limits of users, client-ids and addresses can be altered: the store keeps everything else. A rule that it
    already has is skipped. Entities in ``unread`` could not be read completely from the source: they keep what they
    have.
    """
    wanted: list[EntityChange] = []
    left_out: list[str] = []
    for entity, of_entity in coming.limits.items():
        if _is_same(entity, coming, there):
            continue
        terms, kept = coming.terms.get(entity, _NO_TERMS), there.terms.get(entity, _NO_TERMS)
        if why := _cannot_be_taken(entity, _NO_TERMS if terms == kept else terms):
            left_out.append(f"{entity.describe()}: {why}")
            continue
        taken, refused = _checked(entity, {kind: taken_over(kind, limit) for kind, limit in of_entity.items()})
        left_out += refused
        if not taken:
            continue
        if terms != kept and (written := terms_written(terms)):
            left_out.append(f"{entity.describe()}: {', '.join(written)}: only its limits are imported")
        before = {kind: taken_over(kind, limit) for kind, limit in there.limits.get(entity, {}).items()}
        limits: dict[str, float | None] = {str(kind): of for kind, of in taken.items() if before.get(kind) != of}
        if replace and entity not in unread:
            limits.update((str(kind), None) for kind in before if kind not in of_entity)
        if limits:
            wanted.append(EntityChange(entity, limits))
        if kept not in (terms, _NO_TERMS):
            left_out.append(f"{entity.describe()}: keeps {', '.join(terms_written(kept))} of the store")
    for entity in (each for each, limits in there.limits.items() if replace and limits and each not in coming.limits):
        if entity in unread:
            left_out.append(f"{entity.describe()}: stays: its quotas in the source could not be read")
        elif beyond_kafka(entity):
            left_out.append(f"{entity.describe()}: stays: remove groups, prefixes and caps by hand")
        else:
            wanted.append(EntityChange(entity, {str(kind): None for kind in there.limits[entity]}))
    return Import(wanted, left_out)


def _is_same(entity: Entity, policy: Policy, there: Policy) -> bool:
    return (
        policy.limits[entity] == there.limits.get(entity)
        and policy.terms.get(entity) == there.terms.get(entity)
        and (not isinstance(entity.user, Group) or policy.groups == there.groups)
    )


def _cannot_be_taken(entity: Entity, terms: Terms) -> str:
    """Return why a rule is left out; "" if it is not. ``terms``: those that the store does not have for it.

    Without them, one in shadow would be enforced, and one of the whole cluster would hold at each broker.
    """
    if what := beyond_kafka(entity):
        return f"is {what}, which Kafka does not have"
    if terms.shadow:
        return "is in shadow: elsewhere it would be enforced"
    if terms.of_cluster:
        return "is of the whole cluster (scope: cluster): elsewhere it would apply at each broker"
    if has_cut_name(entity):
        return "only the beginning of its name is known"
    return ""


def _checked(entity: Entity, limits: Mapping[QuotaKind, float]) -> tuple[dict[QuotaKind, float], list[str]]:
    """Return the limits that Kafka accepts, and the reasons for the others."""
    taken: dict[QuotaKind, float] = {}
    refused: list[str] = []
    for kind, limit in limits.items():
        found = check(EntityChange(entity, {str(kind): float(limit)}).as_change())
        if isinstance(found, Refusal):
            refused.append(f"{entity.describe()}: {found}")
        else:
            taken[kind] = float(limit)
    return taken, refused


@click.command("import", cls=StoreCommand, short_help="Take over quotas from a cluster, a ZooKeeper or a file.")
@click.argument("source", metavar="[FILE]", required=False)
@click.option(
    "--from",
    "source_kind",
    type=click.Choice(["cluster", "zookeeper"]),
    help="Take the quotas of a running cluster, or of the ZooKeeper of brokers up to 3.9.",
)
@click.option(
    "--from-address",
    "source_address",
    metavar="HOST:PORT[/CHROOT]",
    help="Address of that cluster or ZooKeeper. Default: the cluster of --config.",
)
@file_option(
    "--from-command-config",
    "source_config",
    help_text="How to connect there: a file as for --command-config or --zookeeper-config.",
)
@target_options
@click.option("--replace", is_flag=True, help="Remove quotas that are not in the source; by default they stay.")
@click.option("--strict", is_flag=True, help="Change nothing unless the whole source can be imported.")
@click.option("--dry-run", is_flag=True, help="Change nothing; print each limit, old → new.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def import_(source: str | None, **options: Any) -> None:
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
        outcomes = make(store, loaded, found.wanted, dry_run=True)
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
            made = make(store, loaded, wanted, dry_run=False)
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
        warn(given.warnings)
        return given.policy, ()
    with closing(open_source(kind, address, config, of=options["config_path"])) as store:
        held = store.load(now_ms())
    warn(held.warnings)
    return held.policy, held.unread


def _stdin() -> str:
    raw = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
    if len(raw) > MAX_FILE_BYTES:
        fix = "is it the right file?"
        raise ConfigError([Problem("stdin", 0, 0, "", f"is larger than {MAX_FILE_BYTES // 1024**2} MiB", fix)])
    return text_of("stdin", raw)


def _agreed(source: str | None, entities: int) -> bool:
    if source == _STDIN:
        raise click.UsageError("quotas from stdin leave nobody to ask: give --yes, or --dry-run to look first")
    return click.confirm(f"Make these changes ({_entities(entities)})?")


def _entities(count: int) -> str:
    return f"{count} {'entity' if count == 1 else 'entities'}"
