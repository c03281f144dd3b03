"""Changes that commands make in a store: checked, applied in batches where the store needs them, and reported."""

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
"""Entities per request to a cluster, or per pass over ZooKeeper."""


@dataclass(frozen=True, slots=True)
class EntityChange:
    """New limits of one entity, by quota name; None removes a limit."""

    entity: Entity
    limits: Mapping[str, float | None]
    named: Mapping[str, Named] = field(default_factory=dict)
    """The names as they were typed, which may be longer than the store keeps; else those of ``entity``."""


def require_of_kafka(entity: Entity) -> None:
    """Raise StoreError for an entity that no store can alter."""
    if not is_of_kafka(entity):
        raise StoreError(f"{entity.describe()}: groups, prefixes and caps are changed by hand, in the quota file")


def require_set(loaded: Loaded, wanted: EntityChange) -> None:
    """Raise StoreError for the removal of a limit that is not set, as kafka-configs does."""
    there = {str(kind) for kind in loaded.policy.limits.get(wanted.entity, {})}
    if missing := [key for key, limit in wanted.limits.items() if limit is None and key not in there]:
        has = f"it has {', '.join(sorted(there))}" if there else "it has no quota"
        has = "; ".join([*map(str, problems_of(loaded, [wanted.entity])), has])
        raise StoreError(f"Invalid config(s): {', '.join(missing)} (of {wanted.entity.describe()}: {has})")


def problems_of(loaded: Loaded, entities: Collection[Entity]) -> list[Problem]:
    """Return the problems that keep the limits of these entities from being read."""
    return [each.problem for each in loaded.unread if each.entity in entities]


def alter(store: QuotaStore, loaded: Loaded, wanted: Sequence[EntityChange], *, dry_run: bool) -> list[Outcome]:
    """Make the changes, or only validate them, and return their outcomes in order.

    If the store has changed since ``loaded``, it stays as it is. A file is changed at once; other stores in batches,
    with the progress shown on a terminal. Raises StoreError.
    """
    size = len(wanted) if isinstance(store, FileStore) else BATCH
    outcomes: list[Outcome] = []
    for start in range(0, len(wanted), max(size, 1)):
        changes = [_change(each) for each in wanted[start : start + size]]
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


def carry_out(store: QuotaStore, loaded: Loaded, wanted: Sequence[EntityChange], *, dry_run: bool) -> bool:
    """Make the changes that a user has typed, and print the outcomes; return whether all succeeded. Raises StoreError
    before anything is changed if a change is impossible.
    """
    for each in wanted:
        require_of_kafka(each.entity)
        require_set(loaded, each)
    return report(wanted, alter(store, loaded, wanted, dry_run=dry_run), dry_run=dry_run)


def report(wanted: Sequence[EntityChange], outcomes: Sequence[Outcome], *, dry_run: bool) -> bool:
    """Print the outcome of each change; return whether all succeeded (or would).

    Changes are reported in the words of kafka-configs; with ``dry_run`` each limit is shown, old and new.
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


def refusals(wanted: Sequence[EntityChange], outcomes: Sequence[Outcome]) -> int:
    """Print the refused changes; return their number."""
    refused = [(each, outcome.refused) for each, outcome in zip(wanted, outcomes, strict=True) if outcome.refused]
    for each, why in refused:
        click.echo(f"error: {each.entity.describe()}: {why}", err=True)
    if refused and len(wanted) > 1:
        click.echo(f"error: {len(refused)} of {len(wanted)} entities were refused", err=True)
    return len(refused)


def _change(wanted: EntityChange) -> Change:
    named = wanted.named or names(wanted.entity)
    of_entity = {kind: name if isinstance(name, Default) else str(name) for kind, name in named.items()}
    return Change(of_entity, list(wanted.limits.items()))


def _who() -> str:
    """Return the author of the changes, for the record: SLUICE_BY, for pipelines, or the system's user."""
    if by := os.environ.get("SLUICE_BY") or os.environ.get("SUDO_USER"):
        return f"{by} by sluice quotas"
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no such user id, as in many containers
        user = "somebody"
    return f"{user} by sluice quotas"
