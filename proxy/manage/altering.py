"""Changes that commands make in a store: checked, made in batches where a store takes them so, and told of."""

import getpass
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import click

from config.problems import Problem
from proxy.manage.grammar import Named
from proxy.manage.wording import altered, completed, names
from quotas.entities import Default, Entity
from quotas.stores.alteration import Alteration, Change, Outcome
from quotas.stores.base import Loaded, QuotaStore, StoreError
from quotas.stores.file_store import FileStore
from quotas.stores.filters import is_of_kafka

BATCH: Final = 1_000
"""Entities of one request to a cluster, or of one look at ZooKeeper."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one entity is to be given: limits by the names of their quotas, None for no limit."""

    entity: Entity
    limits: Mapping[str, float | None]
    named: Mapping[str, Named] = field(default_factory=dict)
    """As somebody named it, who may know a long name whole; otherwise as it is known here."""


def require_of_kafka(entity: Entity) -> None:
    """Refuse what no store can alter. Raises StoreError."""
    if not is_of_kafka(entity):
        raise StoreError(f"{entity.describe()}: groups, prefixes and caps are changed in the quota file, by hand")


def require_set(loaded: Loaded, wanted: Wanted) -> None:
    """Refuse to remove a limit that is not there, as kafka-configs does. Raises StoreError."""
    there = {str(kind) for kind in loaded.policy.limits.get(wanted.entity, {})}
    if missing := [key for key, limit in wanted.limits.items() if limit is None and key not in there]:
        has = f"it has {', '.join(sorted(there))}" if there else "it has no quota"
        has = "; ".join([*map(str, problems_of(loaded, [wanted.entity])), has])
        raise StoreError(f"Invalid config(s): {', '.join(missing)} (of {wanted.entity.describe()}: {has})")


def problems_of(loaded: Loaded, entities: Collection[Entity]) -> list[Problem]:
    """Return what keeps the limits of some of these entities from being known."""
    return [each.problem for each in loaded.unread if each.entity in entities]


def alter(store: QuotaStore, loaded: Loaded, wanted: Sequence[Wanted], *, dry_run: bool) -> list[Outcome]:
    """Make the changes, or only see what would become of them, and return that in their order.

    Nothing is changed if the store holds something else by now than what was ``loaded``. A file is changed all at once;
    other stores in batches, and a line on the terminal says how far it is. Raises StoreError.
    """
    size = len(wanted) if isinstance(store, FileStore) else BATCH
    outcomes: list[Outcome] = []
    for start in range(0, len(wanted), max(size, 1)):
        changes = [_change(each) for each in wanted[start : start + size]]
        version = None if start else loaded.version  # which is another one after the first batch of our own
        try:
            outcomes += store.alter(Alteration(changes, _who(), validate_only=dry_run, version=version))
        except StoreError as error:
            if dry_run or not start:
                raise
            raise StoreError(f"{error}\nthe first {start} of {len(wanted)} entities have been changed") from error
        if len(wanted) > size and sys.stderr.isatty():
            click.echo(f"{len(outcomes)} of {len(wanted)} entities", err=True)
    return outcomes


def carry_out(store: QuotaStore, loaded: Loaded, wanted: Sequence[Wanted], *, dry_run: bool) -> bool:
    """Make the changes that somebody has typed, and print what became of them; return whether all were made. Raises
    StoreError, before anything is changed where one of them cannot be.
    """
    for each in wanted:
        require_of_kafka(each.entity)
        require_set(loaded, each)
    return report(wanted, alter(store, loaded, wanted, dry_run=dry_run), dry_run=dry_run)


def report(wanted: Sequence[Wanted], outcomes: Sequence[Outcome], *, dry_run: bool) -> bool:
    """Print what became of each change, and return whether all were made (or could be).

    What was made is told in the words of kafka-configs; with ``dry_run`` each limit is, old and new.
    """
    for each, outcome in zip(wanted, outcomes, strict=True):
        if outcome.refused is not None:
            continue
        if not dry_run:
            click.echo(completed(each.entity))
        for change in outcome.altered if dry_run else ():
            click.echo(altered(change))
        if dry_run and not outcome.altered:
            click.echo(f"= {each.entity.describe()}")
    return not refusals(wanted, outcomes)


def refusals(wanted: Sequence[Wanted], outcomes: Sequence[Outcome]) -> int:
    """Print what was refused, and return how many were."""
    refused = [(each, outcome.refused) for each, outcome in zip(wanted, outcomes, strict=True) if outcome.refused]
    for each, why in refused:
        click.echo(f"error: {each.entity.describe()}: {why}", err=True)
    if refused and len(wanted) > 1:
        click.echo(f"error: {len(refused)} of {len(wanted)} entities were refused", err=True)
    return len(refused)


def _change(wanted: Wanted) -> Change:
    named = wanted.named or names(wanted.entity)
    of_entity = {kind: name if isinstance(name, Default) else str(name) for kind, name in named.items()}
    return Change(of_entity, list(wanted.limits.items()))


def _who() -> str:
    """Return who makes the changes, for the record: whom SLUICE_BY names, for pipelines, or the user of the system."""
    if by := os.environ.get("SLUICE_BY") or os.environ.get("SUDO_USER"):
        return f"{by} by sluice quotas"
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no such user id, as in many containers
        user = "somebody"
    return f"{user} by sluice quotas"
