"""``sluice quotas diff`` and ``apply``: read the three sides, print the plan, and make the changes."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from proxy.checks.explain import written
from proxy.live.options import Command, file_option, with_options
from proxy.manage import record
from proxy.manage.changing import EntityChange, make, problems_of
from proxy.manage.record import Record
from proxy.manage.target import EXIT_FAILED, AnsweringCommand, load_target, opened, place_of, target_options, warn
from proxy.manage.threeway import Action, Difference, Plan, compare, now_applied
from proxy.manage.wording import number_in_json
from proxy.runtime.clock import now_ms
from quotas.entities import Entity
from quotas.stores.base import Loaded, QuotaStore, StoreError
from quotas.stores.file_store import FileStore

_MOST_FOREIGN: Final = 20
_MARKS: Final = {Action.ADD: "+", Action.CHANGE: "~", Action.REMOVE: "-", Action.CONFLICT: "!", Action.FOREIGN: "?"}
_CANNOT: Final = "x"
_SUPPORTED: Final = "the target supports only limits of users, client-ids and addresses"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The desired, live and last applied quotas, and the plan that results."""

    desired: Loaded
    live: Loaded
    last: Record
    plan: Plan

    def lines(self) -> Iterator[str]:
        foreign = self.plan.of(Action.FOREIGN)
        for each in self.plan.differences:
            if each.action is not Action.FOREIGN:
                yield self._line(each)
        for beyond in self.plan.beyond:
            yield f"{_CANNOT} {beyond.entity.describe()}: {beyond.what}: {_SUPPORTED}{self._at(beyond.entity)}"
        for each in foreign[:_MOST_FOREIGN]:
            yield self._line(each)
        if len(foreign) > _MOST_FOREIGN:
            yield f"{_MARKS[Action.FOREIGN]} and {len(foreign) - _MOST_FOREIGN} more not managed by this file"

    def _line(self, each: Difference) -> str:
        said = f"{_MARKS[each.action]} {each.entity.describe()} {each.kind}"
        live, change = _limit(each.live), f"{_limit(each.live)} → {_limit(each.desired)}{self._at(each.entity)}"
        match each.action:
            case Action.ADD:
                return f"{said} {_limit(each.desired)}{self._at(each.entity)}"
            case Action.REMOVE:
                return f"{said} {live}"
            case Action.FOREIGN:
                return f"{said} {live}: not managed by this file, unchanged"
            case Action.CHANGE:
                return f"{said} {change}"
            case Action.CONFLICT:
                was = "never applied" if each.applied is None else f"applied as {_limit(each.applied)}"
                became = "removed" if each.live is None else f"changed to {live}"
                return f"{said} {change}: {was}, since {became} by someone else"

    def _at(self, entity: Entity) -> str:
        where = place_of(self.desired, entity)
        return f" ({where})" if where else ""

    def summary(self) -> str:
        words = {
            Action.ADD: "to add",
            Action.CHANGE: "to change",
            Action.REMOVE: "to remove",
            Action.CONFLICT: "in conflict",
            Action.FOREIGN: "not managed by this file",
        }
        numbers = [(len(self.plan.of(action)), word) for action, word in words.items()]
        numbers.append((len(self.plan.beyond), "cannot be applied"))
        said = ", ".join(f"{number} {word}" for number, word in numbers if number) or "as desired"
        is_first = self.last.policy is None
        first = f"; {self.last.path} does not exist: no record of an earlier apply" if is_first else ""
        return f"{self.live.source}: {said}{first}"

    def as_data(self) -> dict[str, object]:
        differences: list[dict[str, object]] = [
            {
                "change": each.action.value,
                "entity": each.entity.describe(),
                "kind": each.kind.value,
                "live": None if each.live is None else number_in_json(each.live),
                "desired": each.desired,
                "applied": each.applied,
                "where": place_of(self.desired, each.entity) or None,
            }
            for each in self.plan.differences
        ]
        beyond = [{"entity": each.entity.describe(), "what": each.what} for each in self.plan.beyond]
        return {"target": self.live.source, "differences": differences, "cannot_be_applied": beyond}


desired_options: Callable[[Command], Command] = with_options(
    click.argument("desired", metavar="DESIRED", type=click.Path(path_type=Path)),
    target_options,
    file_option("--last-applied", help_text="The record of the last apply. Default: NAME.applied.yaml beside DESIRED."),
    click.option("--skip-extras", is_flag=True, help="Skip rules that the target cannot hold (x)."),
)
"""The options of ``diff`` and ``apply`` for desired and last applied quotas."""


def read_sides(desired_path: Path, last_path: Path | None, live: Loaded) -> Comparison:
    """Read the desired quotas, with warnings about doubtful ones, and the last applied ones.

    Raises ConfigError, click.UsageError, and StoreError if the desired or part of the live quotas is unreadable.
    """
    if Path(live.source).exists() and desired_path.exists() and desired_path.samefile(live.source):
        raise click.UsageError(f"{desired_path} is the target itself: give a file with the desired quotas")
    path = last_path or record.beside(desired_path)
    if path.exists() and desired_path.exists() and path.samefile(desired_path):
        raise click.UsageError(f"--last-applied: {path} is the file of desired quotas, not a record")
    desired = FileStore(desired_path).load(now_ms())
    warn(desired.warnings)
    last = record.read(path, live.source)
    ours = {*desired.policy.limits, *(last.policy.limits if last.policy is not None else ())}
    if unknown := problems_of(live, ours):
        raise StoreError("\n".join(f"{problem}: fix or delete it, then try again" for problem in unknown))
    return Comparison(desired, live, last, compare(desired.policy, live.policy, last.policy))


def _limit(limit: float | None) -> str:
    return "nothing" if limit is None else written(limit)


@click.command("diff", cls=AnsweringCommand, short_help="Show what apply would change.")
@desired_options
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def diff(desired: Path, last_applied: Path | None, output: str, *, skip_extras: bool, **target: Any) -> None:
    """Print how the quotas of a target differ from a quota file, DESIRED.

    + is added, ~ changed, - removed; ! is in conflict (changed by someone else since it was applied), x cannot be
    applied, ? is not managed by DESIRED and left unchanged.

    \b
    sluice quotas diff quotas.yaml --bootstrap-server broker:9092
    sluice quotas diff quotas.yaml --zookeeper zk:2181 --last-applied production.applied.yaml

    Exit status: 0 for no difference, 1 for differences, 2 for an error.
    """  # noqa: D301  \b is click's
    found = read_sides(desired, last_applied, load_target(**target))
    if output == "json":
        click.echo(json.dumps(found.as_data(), indent=2, ensure_ascii=False))
    else:
        click.echo("\n".join([*found.lines(), found.summary()]))
    sys.exit(EXIT_FAILED if found.plan.differs(skip_extras=skip_extras) else 0)


@click.command("apply", cls=AnsweringCommand, short_help="Bring quotas in line with a file.")
@desired_options
@click.option("--dry-run", is_flag=True, help="Have the target validate everything; change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--force", is_flag=True, help="Also overwrite limits that someone else has changed since they were applied."
)
def apply(
    desired: Path,
    last_applied: Path | None,
    *,
    dry_run: bool,
    yes: bool,
    force: bool,
    skip_extras: bool,
    **target: Any,
) -> None:
    """Bring a target's quotas in line with a quota file, DESIRED.

    It prints the output of `sluice quotas diff`, asks, and makes just those changes. The applied quotas are recorded,
    so that a quota taken out of DESIRED is removed the next time, and one that someone else has added stays. To roll
    back, apply an older DESIRED.

    \b
    sluice quotas apply quotas.yaml --bootstrap-server broker:9092
    sluice quotas apply quotas.yaml --zookeeper zk:2181 --last-applied production.applied.yaml --yes

    Exit status: 0 if the target is as desired, 1 if anything was refused or you declined, 2 for an error.
    """  # noqa: D301  \b is click's
    with opened(**target) as (store, live):
        found = read_sides(desired, last_applied, live)
        click.echo("\n".join([*found.lines(), found.summary()]))
        if why := _refused(found, force=force, skip_extras=skip_extras):
            click.echo(f"nothing was applied: {why}", err=True)
            sys.exit(EXIT_FAILED)
        to_make = found.plan.to_make + found.plan.of(Action.CONFLICT)
        if not dry_run:
            record.require_writable(found.last)
            if to_make and not yes:
                _ask(len(to_make), live.source)
        refused = _make(store, found, to_make, dry_run=dry_run) if to_make else {}
        for entity, reason in refused.items():
            click.echo(f"refused: {entity.describe()}: {reason}", err=True)
        made = sum(each.entity not in refused for each in to_make)
        if dry_run:
            click.echo(f"{live.source}: {made} of {len(to_make)} would be made; nothing was changed")
        else:
            _record(found, {*refused, *(each.entity for each in found.plan.beyond)})
            click.echo(f"{live.source}: {made} of {len(to_make)} made")
        sys.exit(EXIT_FAILED if refused else 0)


def _refused(found: Comparison, *, force: bool, skip_extras: bool) -> str:
    if found.plan.beyond and not skip_extras:
        return "rules marked x cannot be applied; take them out of the file, or skip them with --skip-extras"
    if found.plan.of(Action.CONFLICT) and not force:
        return "conflicts are marked !; copy the live value into the file, or overwrite it with --force"
    return ""


def _ask(number: int, source: str) -> None:
    try:
        click.confirm(f"make {number} change{'' if number == 1 else 's'} at {source}?", abort=True)
    except click.Abort:
        click.echo("\nnothing was applied; pass --yes if nobody can answer", err=True)
        sys.exit(EXIT_FAILED)


def _make(store: QuotaStore, found: Comparison, to_make: Sequence[Difference], *, dry_run: bool) -> dict[Entity, str]:
    """Make the changes; return why the target has refused which of them. Raises StoreError."""
    limits: dict[Entity, dict[str, float | None]] = {}
    for each in to_make:
        limits.setdefault(each.entity, {})[each.kind.value] = each.desired
    wanted = [EntityChange(entity, of_entity) for entity, of_entity in limits.items()]
    outcomes = zip(limits, make(store, found.live, wanted, dry_run=dry_run), strict=True)
    return {entity: str(outcome.refused) for entity, outcome in outcomes if outcome.refused is not None}


def _record(found: Comparison, refused: set[Entity]) -> None:
    if not found.last.is_ours:
        click.echo(f"{found.last.path} was not written by apply: it is left unchanged", err=True)
        return
    applied = now_applied(found.desired.policy, found.live.policy, found.last.policy, refused)
    record.write(found.last, found.live.source, applied)
