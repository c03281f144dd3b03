"""``sluice analyze recommend``."""

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from analysis import options
from analysis.answering import Answering
from analysis.errors import AnalysisError
from analysis.recommend.output import refuse_place, write
from analysis.spark.session import SparkSettings

if TYPE_CHECKING:
    from analysis.kernel.target import Target
    from analysis.recommend.present_file import Present

EXIT_LOW: Final = 1
_RECORD: Final = "record for a week, or take it with --accept-low-confidence"


@click.command(cls=Answering)
@options.warehouse_option
@click.option(
    "--target",
    required=True,
    metavar="TEXT",
    help='What is to hold: "p99 throttle < 100 ms", "p95 delay < 2 s" or "throttled share < 0.1 %".',
)
@click.option(
    "--quotas",
    "quotas_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The present quotas: this file is rewritten with new limits; everything else stays.",
)
@click.option("--propose", is_flag=True, help="Write what is recommended as `proposed` beside the limits in force.")
@click.option(
    "--per",
    type=click.Choice(["user", "client-id", "user,client-id"]),
    help="Whom quotas are for, without --quotas; default: user.",
)
@click.option(
    "--entities",
    multiple=True,
    metavar="NAME",
    help="Only these, with * and ?, as in `user=alice*`; may be repeated.",
)
@click.option(
    "--headroom",
    default=0.15,
    show_default=True,
    type=options.FiniteRange(0, 1000),
    help="How much more than needed, as a share.",
)
@click.option("--accept-low-confidence", "accept_low", is_flag=True, help="Recommend also what little is known of.")
@options.period_options
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the quota file there, not to stdout. One that is there already is left as it is.",
)
@click.option("--force", is_flag=True, help="Write --out over a file that is there.")
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
    force: bool,
) -> None:
    """Find the smallest quotas under which what was recorded meets a target, and put them into the present ones.

    With --quotas: the present file with its limits changed. Without: a new quota file. The difference, and
    what it is found from, is on stderr.

    Exit status: 0 done, 1 if anything was left out for low confidence, 2 for an error.
    """
    from analysis.demand import sums
    from analysis.demand.rows import Rows
    from analysis.recommend.choices import Choices, Per
    from analysis.recommend.job import recommend
    from analysis.recommend.new_file import new_file
    from analysis.recommend.present_file import merged
    from analysis.recommend.quota_counters import by_name, by_rules
    from analysis.recommend.verdicts import Fate, lines, summary, verdicts
    from analysis.warehouse import Period

    choices = Choices(_target(target), headroom, entities)
    if out is not None:
        refuse_place(out, force=force)
    present = _present(quotas_path, per, propose=propose)
    each = Per(per or Per.USER)
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
        refuse_place(out, force=force)
        if present is not None and not present.is_unchanged():
            raise AnalysisError(f"{present.path} has been changed meanwhile: nothing is written; start again")
        write(out, text)
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
    """Return the present quotas, if they are given."""
    from analysis.recommend.present_file import read

    if path is None:
        if propose:
            raise click.UsageError("--propose needs the present quotas: give --quotas")
        return None
    if per is not None:
        raise click.UsageError("--per is for a new file: present quotas say themselves whom they are for")
    present = read(path)
    for warning in present.loaded.warnings:
        click.echo(f"warning: {warning}", err=True)
    return present
