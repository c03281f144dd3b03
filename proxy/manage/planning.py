"""Shared by ``diff`` and ``apply``: reads the three sides, and prints the plan."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from proxy.checks.explain import finite, written
from proxy.manage import record
from proxy.manage.altering import problems_of
from proxy.manage.options import Command, with_options
from proxy.manage.record import Record
from proxy.manage.target import target_options
from proxy.manage.threeway import Action, Difference, Plan, Unsupported, compare
from quotas.entities import Entity
from quotas.policy import Policy
from quotas.stores.base import Loaded, StoreError
from quotas.stores.file import load

EXIT_FAILED: Final = 2
_MOST_FOREIGN: Final = 20
_MARKS: Final = {Action.ADD: "+", Action.CHANGE: "~", Action.REMOVE: "-", Action.CONFLICT: "!", Action.FOREIGN: "?"}
_CANNOT: Final = "x"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The desired, live and last applied quotas, and the plan that results."""

    desired: Policy
    places: Mapping[Entity, str]
    """Desired entity → where its rule is defined."""
    live: Loaded
    last: Record
    plan: Plan

    def lines(self) -> Iterator[str]:
        """Yield the plan, one line per limit."""
        foreign = self.plan.of(Action.FOREIGN)
        for each in self.plan.differences:
            if each.action is not Action.FOREIGN:
                yield self._line(each)
        for beyond in self.plan.beyond:
            yield f"{_CANNOT} {beyond.entity.describe()}: {_beyond(beyond)}{self._at(beyond.entity)}"
        for each in foreign[:_MOST_FOREIGN]:
            yield self._line(each)
        if len(foreign) > _MOST_FOREIGN:
            yield f"{_MARKS[Action.FOREIGN]} and {len(foreign) - _MOST_FOREIGN} more not managed by this file"

    def _line(self, each: Difference) -> str:
        said = f"{_MARKS[each.action]} {each.entity.describe()} {each.kind}"
        live, desired = _limit(each.live), _limit(each.desired)
        match each.action:
            case Action.ADD:
                return f"{said} {desired}{self._at(each.entity)}"
            case Action.REMOVE:
                return f"{said} {live}"
            case Action.FOREIGN:
                return f"{said} {live}: not managed by this file, unchanged"
            case Action.CHANGE:
                return f"{said} {live} → {desired}{self._at(each.entity)}"
            case Action.CONFLICT:
                was = "never applied" if each.applied is None else f"applied as {_limit(each.applied)}"
                became = "removed" if each.live is None else f"changed to {live}"
                return f"{said} {live} → {desired}{self._at(each.entity)}: {was}, since {became} by someone else"

    def _at(self, entity: Entity) -> str:
        return f" ({self.places[entity]})" if entity in self.places else ""

    def summary(self) -> str:
        """Return a summary of the plan in numbers."""
        words = {
            Action.ADD: "to add",
            Action.CHANGE: "to change",
            Action.REMOVE: "to remove",
            Action.CONFLICT: "in conflict",
            Action.FOREIGN: "not managed by this file",
        }
        numbers = [(len(self.plan.of(action)), word) for action, word in words.items()]
        said = [
            f"{number} {word}" for number, word in [*numbers, (len(self.plan.beyond), "cannot be applied")] if number
        ]
        first = (
            "" if self.last.policy is not None else f"; {self.last.path} does not exist: no record of an earlier apply"
        )
        return f"{self.live.source}: {', '.join(said) or 'as desired'}{first}"

    def as_data(self) -> dict[str, object]:
        """Return the plan as data."""
        differences: list[dict[str, object]] = [
            {
                "change": each.action.value,
                "entity": each.entity.describe(),
                "kind": each.kind.value,
                "live": finite(each.live),
                "desired": each.desired,
                "applied": each.applied,
                "where": self.places.get(each.entity),
            }
            for each in self.plan.differences
        ]
        beyond = [{"entity": each.entity.describe(), "what": each.what} for each in self.plan.beyond]
        return {"target": self.live.source, "differences": differences, "cannot_be_applied": beyond}


def desired_options(command: Command) -> Command:
    """Add the options for desired and last applied quotas to a command."""
    return with_options(
        command,
        click.argument("desired", metavar="DESIRED", type=click.Path(path_type=Path)),
        target_options,
        click.option(
            "--last-applied",
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="The record of the last apply. Default: NAME.applied.yaml beside DESIRED.",
        ),
        click.option("--skip-extras", is_flag=True, help="Skip rules that the target cannot hold (x)."),
    )


def read_sides(desired_path: Path, last_path: Path | None, live: Loaded) -> Comparison:
    """Read the desired quotas, with warnings about doubtful ones, and the last applied ones.

    Raises ConfigError, click.UsageError, and StoreError if the record or part of the live quotas is unreadable.
    """
    if Path(live.source).exists() and desired_path.exists() and desired_path.samefile(live.source):
        raise click.UsageError(f"{desired_path} is the target itself: give a file with the desired quotas")
    path = last_path or record.beside(desired_path)
    if path.exists() and desired_path.exists() and path.samefile(desired_path):
        raise click.UsageError(f"--last-applied: {path} is the file of desired quotas, not a record")
    loaded = load(desired_path)
    desired = loaded.policy
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}", err=True)
    places = {entity: f"{desired_path}:{line}" for entity, line in loaded.lines.items()}
    last = record.read(path, live.source)
    ours = {*desired.limits, *(last.policy.limits if last.policy is not None else ())}
    if unknown := problems_of(live, ours):
        raise StoreError("\n".join(f"{problem}: fix or delete it, then try again" for problem in unknown))
    return Comparison(desired, places, live, last, compare(desired, live.policy, last.policy))


def _limit(limit: float | None) -> str:
    return "nothing" if limit is None else written(limit)


def _beyond(beyond: Unsupported) -> str:
    return f"{beyond.what}: the target supports only limits of users, client-ids and addresses"
