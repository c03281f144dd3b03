"""Changes in a store, checked, made in batches where the store needs that, and reported: ``alter``, ``delete``."""

import getpass
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import click

from config.problems import Problem
from proxy.manage.grammar import Named, QuotaArguments, QuotaCommand, adding_option, entity_options, removing_option
from proxy.manage.target import EXIT_FAILED, opened, target_options
from proxy.manage.wording import altered, completed, names
from quotas.entities import Default, Entity
from quotas.stores.alteration import Alteration, Change, Outcome
from quotas.stores.base import Loaded, QuotaStore, StoreError
from quotas.stores.file_store import FileStore
from quotas.stores.filters import is_of_kafka

BATCH: Final = 1_000
"""Entities per request to a cluster, or per pass over ZooKeeper."""


@dataclass(frozen=True, slots=True)
class EntityChange:
    """New limits of one entity, by quota name; None removes a limit."""

    entity: Entity
    limits: Mapping[str, float | None]
    named: Mapping[str, Named] = field(default_factory=dict)
    """The names as they were typed, which may be longer than the store keeps; else those of ``entity``."""

    def as_change(self) -> Change:
        named = self.named or names(self.entity)
        of_entity = {kind: name if isinstance(name, Default) else str(name) for kind, name in named.items()}
        return Change(of_entity, list(self.limits.items()))


def _require_possible(loaded: Loaded, wanted: EntityChange) -> None:
    """Raise StoreError for an entity that no store can alter, and, as kafka-configs, for the removal of a limit that is
    not set.
    """
    entity = wanted.entity
    if not is_of_kafka(entity):
        raise StoreError(f"{entity.describe()}: groups, prefixes and caps are changed by hand, in the quota file")
    there = {str(kind) for kind in loaded.policy.limits.get(entity, {})}
    if missing := [key for key, limit in wanted.limits.items() if limit is None and key not in there]:
        has = f"it has {', '.join(sorted(there))}" if there else "it has no quota"
        has = "; ".join([*map(str, problems_of(loaded, [entity])), has])
        raise StoreError(f"Invalid config(s): {', '.join(missing)} (of {entity.describe()}: {has})")


def problems_of(loaded: Loaded, entities: Collection[Entity]) -> list[Problem]:
    """Return the problems that keep the limits of these entities from being read."""
    return [each.problem for each in loaded.unread if each.entity in entities]


def make(store: QuotaStore, loaded: Loaded, wanted: Sequence[EntityChange], *, dry_run: bool) -> list[Outcome]:
    """Make the changes, or only validate them, and return their outcomes in order.

    If the store has changed since ``loaded``, it stays as it is. A file is changed at once; other stores in batches,
    with the progress shown on a terminal. Raises StoreError.
    """
    size = len(wanted) if isinstance(store, FileStore) else BATCH
    outcomes: list[Outcome] = []
    for start in range(0, len(wanted), max(size, 1)):
        changes = [each.as_change() for each in wanted[start : start + size]]
        version = None if start else loaded.version  # after the first batch it is that of our own change
        try:
            outcomes += store.alter(Alteration(changes, _who(), validate_only=dry_run, version=version))
        except StoreError as error:
            if dry_run or not start:
                raise
            raise StoreError(f"{error}\nthe first {start} of {len(wanted)} entities have been changed") from error
        if len(wanted) > size and sys.stderr.isatty():
            click.echo(f"{len(outcomes)} of {len(wanted)} entities", err=True)
    return outcomes


def carry_out(store: QuotaStore, loaded: Loaded, wanted: Sequence[EntityChange], *, dry_run: bool) -> None:
    """Make the changes that a user has typed, print the outcomes, and exit if any is refused. Raises StoreError before
    anything is changed if a change is impossible.
    """
    for each in wanted:
        _require_possible(loaded, each)
    if not report(wanted, make(store, loaded, wanted, dry_run=dry_run), dry_run=dry_run):
        sys.exit(EXIT_FAILED)


def report(wanted: Sequence[EntityChange], outcomes: Sequence[Outcome], *, dry_run: bool) -> bool:
    """Print the outcome of each change; return whether all succeeded (or would).

    Changes are reported in the words of kafka-configs; with ``dry_run`` each limit is shown, old and new.
    """
    for each, outcome in zip(wanted, outcomes, strict=True):
        if outcome.refused is None:
            limits = [altered(change) for change in outcome.altered] or [f"= {each.entity.describe()}"]
            click.echo("\n".join(limits) if dry_run else completed(each.entity))
    return not refusals(wanted, outcomes)


def refusals(wanted: Sequence[EntityChange], outcomes: Sequence[Outcome]) -> int:
    """Print the refused changes; return their number."""
    refused = [(each, outcome.refused) for each, outcome in zip(wanted, outcomes, strict=True) if outcome.refused]
    for each, why in refused:
        click.echo(f"error: {each.entity.describe()}: {why}", err=True)
    if refused and len(wanted) > 1:
        click.echo(f"error: {len(refused)} of {len(wanted)} entities were refused", err=True)
    return len(refused)


def _who() -> str:
    """Return the author of the changes, for the record: SLUICE_BY, for pipelines, or the system's user."""
    if by := os.environ.get("SLUICE_BY") or os.environ.get("SUDO_USER"):
        return f"{by} by sluice quotas"
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no such user id, as in many containers
        user = "somebody"
    return f"{user} by sluice quotas"


@click.command("alter", cls=QuotaCommand, short_help="Set limits, and remove them.")
@target_options
@entity_options
@adding_option
@removing_option
@click.option("--dry-run", is_flag=True, help="Change nothing; print each limit, old → new.")
def alter(arguments: QuotaArguments, *, dry_run: bool, **store_options: Any) -> None:
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
        carry_out(store, loaded, wanted, dry_run=dry_run)


@click.command("delete", cls=QuotaCommand, short_help="Remove limits.")
@target_options
@entity_options
@removing_option
@click.option("--dry-run", is_flag=True, help="Change nothing; print the limits that would go.")
def delete(arguments: QuotaArguments, *, dry_run: bool, **target: Any) -> None:
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
            there = loaded.policy.limits.get(entity)
            if not there:
                unread = [f"; {problem}" for problem in problems_of(loaded, [entity])]
                raise StoreError(f"{entity.describe()} has no quota{''.join(unread)}")
            wanted.append(EntityChange(entity, dict.fromkeys(arguments.removed or map(str, there)), named))
        carry_out(store, loaded, wanted, dry_run=dry_run)
