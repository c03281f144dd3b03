"""What ``diff`` and ``apply`` have in common: the three sides read, and the plan in words."""

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
from proxy.manage.threeway import Beyond, Difference, Fate, Plan, compare
from quotas.entities import Entity
from quotas.policy import Policy
from quotas.stores.base import Loaded, StoreError
from quotas.stores.file import load

EXIT_FAILED: Final = 2
_MOST_FOREIGN: Final = 20
_MARKS: Final = {Fate.ADD: "+", Fate.CHANGE: "~", Fate.REMOVE: "-", Fate.CONFLICT: "!", Fate.FOREIGN: "?"}
_CANNOT: Final = "x"


@dataclass(frozen=True, slots=True)
class Sides:
    """What is desired, what is live, what was applied last, and what that comes to."""

    desired: Policy
    places: Mapping[Entity, str]
    """Where each rule stands that is desired."""
    live: Loaded
    last: Record
    plan: Plan

    def lines(self) -> Iterator[str]:
        """Yield the plan, a line for each limit."""
        foreign = self.plan.of(Fate.FOREIGN)
        for each in self.plan.differences:
            if each.fate is not Fate.FOREIGN:
                yield self._line(each)
        for beyond in self.plan.beyond:
            yield f"{_CANNOT} {beyond.entity.describe()}: {_beyond(beyond)}{self._at(beyond.entity)}"
        for each in foreign[:_MOST_FOREIGN]:
            yield self._line(each)
        if len(foreign) > _MOST_FOREIGN:
            yield f"{_MARKS[Fate.FOREIGN]} and {len(foreign) - _MOST_FOREIGN} more that are none of ours"

    def _line(self, each: Difference) -> str:
        said = f"{_MARKS[each.fate]} {each.entity.describe()} {each.kind}"
        live, desired = _limit(each.live), _limit(each.desired)
        match each.fate:
            case Fate.ADD:
                return f"{said} {desired}{self._at(each.entity)}"
            case Fate.REMOVE:
                return f"{said} {live}"
            case Fate.FOREIGN:
                return f"{said} {live}: none of ours, and left as it is"
            case Fate.CHANGE:
                return f"{said} {live} → {desired}{self._at(each.entity)}"
            case Fate.CONFLICT:
                was = "never applied" if each.applied is None else f"applied as {_limit(each.applied)}"
                became = "removed" if each.live is None else f"made {live}"
                return f"{said} {live} → {desired}{self._at(each.entity)}: {was}, and {became} by somebody since"

    def _at(self, entity: Entity) -> str:
        return f" ({self.places[entity]})" if entity in self.places else ""

    def summary(self) -> str:
        """Return what the plan comes to, in numbers."""
        words = {
            Fate.ADD: "to add",
            Fate.CHANGE: "to change",
            Fate.REMOVE: "to remove",
            Fate.CONFLICT: "in conflict",
            Fate.FOREIGN: "none of ours",
        }
        numbers = [(len(self.plan.of(fate)), word) for fate, word in words.items()]
        said = [
            f"{number} {word}" for number, word in [*numbers, (len(self.plan.beyond), "cannot be applied")] if number
        ]
        first = "" if self.last.policy is not None else f"; {self.last.path} is not there: nothing is known of before"
        return f"{self.live.source}: {', '.join(said) or 'as desired'}{first}"

    def as_data(self) -> dict[str, object]:
        """Return the plan for programs."""
        differences: list[dict[str, object]] = [
            {
                "change": each.fate.value,
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
    """Give a command what says what is desired, and what was applied last."""
    return with_options(
        command,
        click.argument("desired", metavar="DESIRED", type=click.Path(path_type=Path)),
        target_options,
        click.option(
            "--last-applied",
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="What was applied last; apply writes it. Default: NAME.applied.yaml beside DESIRED.",
        ),
        click.option("--skip-extras", is_flag=True, help="Leave out what the target cannot take (x)."),
    )


def sides(desired_path: Path, last_path: Path | None, live: Loaded) -> Sides:
    """Read what is desired, with a warning of what is doubtful there, and what was applied last.

    Raises ConfigError, click.UsageError, and StoreError: of the record, and where it is not known what is live.
    """
    if Path(live.source).exists() and desired_path.exists() and desired_path.samefile(live.source):
        raise click.UsageError(f"{desired_path} is the target itself: give the quotas that are to be made there")
    path = last_path or record.beside(desired_path)
    if path.exists() and desired_path.exists() and path.samefile(desired_path):
        raise click.UsageError(f"--last-applied: {path} is what is desired, and no record of what was applied")
    loaded = load(desired_path)
    desired = loaded.policy
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}", err=True)
    places = {entity: f"{desired_path}:{line}" for entity, line in loaded.lines.items()}
    last = record.read(path, live.source)
    ours = {*desired.limits, *(last.policy.limits if last.policy is not None else ())}
    if unknown := problems_of(live, ours):
        raise StoreError("\n".join(f"{problem}: mend that, or delete it, and try again" for problem in unknown))
    return Sides(desired, places, live, last, compare(desired, live.policy, last.policy))


def _limit(limit: float | None) -> str:
    return "nothing" if limit is None else written(limit)


def _beyond(beyond: Beyond) -> str:
    return f"{beyond.what}: the target takes limits of users, client-ids and addresses alone"
