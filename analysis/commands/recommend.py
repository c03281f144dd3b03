"""``sluice analyze recommend``."""

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from analysis import options
from analysis.errors import AnalysisError
from analysis.recommend.output import create, refuse_path
from analysis.spark.session import SparkSettings

if TYPE_CHECKING:
    from analysis.kernel.target import Target
    from analysis.recommend.present_file import Present

EXIT_LOW: Final = 1
_RECORD: Final = "record for a week, or accept them with --accept-low-confidence"


@click.command()
@options.warehouse_option
@click.option(
    "--target",
    required=True,
    metavar="TEXT",
    help='The target: "p99 throttle < 100 ms", "p95 delay < 2 s" or "throttled share < 0.1 %".',
)
@click.option(
    "--quotas",
    "quotas_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The present quotas: the result is this file with new limits; everything else stays.",
)
@click.option("--propose", is_flag=True, help="Write recommended limits as `proposed` beside those in force.")
@click.option(
    "--per",
    type=click.Choice(["user", "client-id", "user,client-id"]),
    help="Entity type, if --quotas is absent; default: user.",
)
@click.option(
    "--entities",
    multiple=True,
    metavar="NAME",
    help="Only these entities, with * and ?, as in `user=alice*`; may be repeated.",
)
@click.option(
    "--headroom",
    default=0.15,
    show_default=True,
    type=options.FiniteRange(0, 1000),
    help="Margin above the needed limit, as a share of it.",
)
@click.option("--accept-low-confidence", "accept_low", is_flag=True, help="Change limits with low confidence too.")
@options.period_options
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the quota file there, not to stdout; it must not exist.",
)
@options.spark_options
def command(
    warehouse: str,
    target: str,
    quotas_path: Path | None,
    per: str | None,
    entities: tuple[str, ...],
    headroom: float,
    begin: datetime | None,
    end: datetime | None,
    out: Path | None,
    spark: SparkSettings,
    *,
    propose: bool,
    accept_low: bool,
) -> None:
    """Find the smallest quotas under which recorded demand meets a target, and write them to a quota file.

    With --quotas: the present file with its limits changed. Without: a new quota file. The changes and their reasons
    are on stderr.

    Exit status: 0 done, 1 if anything was left out for low confidence, 2 for an error.
    """
    from analysis.demand import sums
    from analysis.demand.rows import Rows
    from analysis.recommend.choices import Choices
    from analysis.recommend.job import recommend
    from analysis.recommend.new_file import new_file
    from analysis.recommend.present_file import merged
    from analysis.recommend.quota_counters import by_name, by_rules
    from analysis.recommend.verdicts import Fate, lines, summary, verdicts
    from analysis.warehouse import Period

    choices = Choices(_target(target), headroom, entities)
    if out is not None:
        refuse_path(out)
    present = _present(quotas_path, per, propose=propose)
    each = per or "user"
    period = Period.around(begin, end)
    recorded = sums.read(warehouse, period)
    policy = present.policy if present else by_name(recorded, each, choices)
    wanted = by_rules(recorded, policy, choices)
    needs = recommend(recorded, choices, wanted, Rows("recommend", spark, warehouse, period))
    found = verdicts(policy, needs, choices, accept_low=accept_low)
    notes = recorded.circumstances.notes()
    for line in (*(f"note: {note}" for note in notes), *lines(found, propose=propose)):
        click.echo(line, err=True)
    name = str(present.path) if present else f"quotas per {each}"
    click.echo(f"{name}: {summary(found, policy, wanted.outside_words())}", err=True)
    if present is None:
        text = new_file(found, each, choices, target, recorded.circumstances)
    else:
        text = merged(present, found, propose=propose)
    if out is None:
        click.echo(text, nl=False)
    else:
        if present is not None and not present.is_unchanged():
            raise AnalysisError(f"{present.path} was changed while this ran: nothing was written; run it again")
        create(out, text)
    if low := sum(verdict.fate is Fate.LOW for verdict in found):
        click.echo(f"warning: {low} left out for low confidence: {_RECORD}", err=True)
        sys.exit(EXIT_LOW)


def _target(written: str) -> "Target":
    from analysis.kernel.target import parse_target
    from config.problems import InvalidValue

    try:
        return parse_target(written)
    except InvalidValue as error:
        raise click.BadParameter(f"{error.message}; {error.hint}", param_hint="--target") from None


def _present(path: Path | None, per: str | None, *, propose: bool) -> "Present | None":
    """Return the file of ``--quotas``, if it is given."""
    from analysis.recommend.present_file import read

    if path is None:
        if propose:
            raise click.UsageError("--propose needs the present quotas: give --quotas")
        return None
    if per is not None:
        raise click.UsageError("--per is for a new file: with --quotas, the entities are those of that file")
    present = read(path)
    for warning in present.loaded.warnings:
        click.echo(f"warning: {warning}", err=True)
    return present
