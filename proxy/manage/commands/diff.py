"""``sluice quotas diff``: show the changes that an apply would make."""

import json
import sys
from pathlib import Path
from typing import Any, Final

import click

from proxy.manage.planning import EXIT_FAILED, desired_options, read_sides
from proxy.manage.target_store import failing_with, load_target

EXIT_DIFFERENT: Final = 1


@click.command(short_help="Show what apply would change.")
@desired_options
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(desired: Path, last_applied: Path | None, output: str, *, skip_extras: bool, **target: Any) -> None:
    """Print how the quotas of a target differ from a quota file, DESIRED.

    + is added, ~ changed, - removed; ! is in conflict (changed by someone else since it was applied), x cannot be
    applied, ? is not managed by DESIRED and left unchanged.

    \b
    sluice quotas diff quotas.yaml --bootstrap-server broker:9092
    sluice quotas diff quotas.yaml --zookeeper zk:2181 --last-applied production.applied.yaml

    Exit status: 0 for no difference, 1 for differences, 2 for an error.
    """  # noqa: D301  \b is click's
    with failing_with(EXIT_FAILED):
        found = read_sides(desired, last_applied, load_target(**target))
    if output == "json":
        click.echo(json.dumps(found.as_data(), indent=2, ensure_ascii=False))
    else:
        click.echo("\n".join([*found.lines(), found.summary()]))
    sys.exit(EXIT_DIFFERENT if found.plan.differs(skip_extras=skip_extras) else 0)
