"""``sluice analyze recommend``."""

import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from analysis import options
from analysis.answering import Answering
from analysis.errors import AnalysisError
from analysis.recommend.writing import refuse_place, write
from analysis.spark import session
from analysis.spark.session import SparkSettings

if TYPE_CHECKING:
    from analysis.kernel.target import Target
    from analysis.recommend.choices import Choices
    from analysis.recommend.needs import Recommendation
    from analysis.recommend.present import Present
    from analysis.recommend.whose import Wanted
    from analysis.replay.recording import Recording

EXIT_LOW: Final = 1
_RECORD: Final = "record for a week, or take it with --accept-low-confidence"


def _bytes(_: click.Context, __: click.Parameter, value: str) -> float:
    from config.problems import InvalidValue
    from config.units import parse_bytes

    try:
        return float(parse_bytes(value))
    except InvalidValue as error:
        raise click.BadParameter(f"{error.message}; {error.hint}") from None


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
    help="The present quotas: written is this file with other limits, whatever else it says.",
)
@click.option(
    "-c",
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The configuration (sluice.yaml) that names the file of the present quotas, instead of --quotas.",
)
@click.option("--propose", is_flag=True, help="Write what is recommended as `proposed` beside the limits in force.")
@click.option(
    "--per",
    type=click.Choice(["user", "client-id", "user,client-id"]),
    help="Whom quotas are for, without --quotas. Not given: whom those in force were for; users, if there were none.",
)
@click.option(
    "--entities",
    multiple=True,
    metavar="NAME",
    help="Only these, with * and ?; may be repeated. Of present quotas: `user=alice*`.",
)
@click.option(
    "--headroom",
    default=0.15,
    show_default=True,
    type=options.FiniteRange(0, 1000),
    help="How much more than needed, as a share.",
)
@click.option("--floor", default="1kB", show_default=True, callback=_bytes, metavar="BYTES", help="The least quota.")
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
    config_path: Path | None,
    per: str | None,
    entities: tuple[str, ...],
    headroom: float,
    floor: float,
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

    With --quotas or --config: the present file with its limits changed, and the difference on stderr. Without: a new
    quota file that explains itself.

    Exit status: 0 done, 1 if anything was left out for low confidence, 2 for an error.
    """
    aim = _target(target)
    if out is not None:
        refuse_place(out, force=force)
    present = _present(quotas_path, config_path, per, propose=propose)
    running = session.start("recommend", spark)
    from analysis.recommend.choices import Choices, Per
    from analysis.recommend.job import recommend
    from analysis.replay import recording
    from analysis.spark.progress import Progress
    from analysis.table import warehouse as stored

    choices = Choices(aim, None if per is None else Per(per), headroom, floor, entities)
    with Progress(running, "recommend", steps=2) as progress:
        progress.step("who used what")
        recorded = recording.read(stored.usage(running, warehouse, begin, end))
        progress.step("search")
        choices, wanted = _whose(recorded, choices, present)
        found = recommend(recorded, choices, wanted)
    if present is None:
        text, low = _new(found, choices, target, recorded, wanted, accept_low=accept_low, out=out)
    else:
        text, low = _merged(present, found, choices, recorded, wanted, propose=propose, accept_low=accept_low)
    if out is None:
        click.echo(text, nl=False)
    else:
        refuse_place(out, force=force)
        if present is not None and not present.is_unchanged():
            raise AnalysisError(f"{present.path} has been changed meanwhile: nothing is written; start again")
        write(out, text)
    if low:
        click.echo(f"warning: {low} left out for low confidence: {_RECORD}", err=True)
        sys.exit(EXIT_LOW)


def _target(written: str) -> "Target":
    from analysis.kernel.target import parse_target
    from config.problems import InvalidValue

    try:
        return parse_target(written)
    except InvalidValue as error:
        raise click.BadParameter(f"{error.message}; {error.hint}", param_hint="--target") from None


def _present(quotas: Path | None, config: Path | None, per: str | None, *, propose: bool) -> "Present | None":
    """Return the present quotas, if they are given."""
    from analysis.recommend.present import quota_file_of, read

    if quotas is not None and config is not None:
        raise click.UsageError("give either --quotas or --config")
    path = quota_file_of(config) if config is not None else quotas
    if path is None:
        if propose:
            raise click.UsageError("--propose needs the present quotas: give --quotas or --config")
        return None
    if per is not None:
        raise click.UsageError("--per is for a new file: present quotas say themselves whom they are for")
    present = read(path)
    for warning in present.loaded.warnings:
        click.echo(f"warning: {warning}", err=True)
    return present


def _whose(recorded: "Recording", choices: "Choices", present: "Present | None") -> "tuple[Choices, Wanted]":
    """Return whose quotas are looked for, and the choices by which."""
    from dataclasses import replace

    from analysis.recommend import whose
    from analysis.recommend.choices import Per

    if present is not None:
        return choices, whose.by_rules(recorded, present.policy, choices)
    if choices.per is None and whose.were_under_rules(recorded):
        return choices, whose.by_records(recorded, choices)
    choices = replace(choices, per=choices.per or Per.USER)
    return choices, whose.by_name(recorded, choices)


def _new(
    found: "Sequence[Recommendation]",
    choices: "Choices",
    target: str,
    recorded: "Recording",
    wanted: "Wanted",
    *,
    accept_low: bool,
    out: Path | None,
) -> tuple[str, int]:
    """Return a new quota file, and how many quotas are left out of it for low confidence."""
    from analysis.kernel.advice import Confidence
    from analysis.recommend import quota_file

    every = found if accept_low else list(quota_file.trusted(found))
    whole = len({(each.user, each.client_id) for each in every})
    given = len({(each.user, each.client_id) for each in every if not each.refused})
    without = f", and {whole - given} without one: the file says why" if whole > given else ""
    click.echo(f"quotas for {given} of {whole}{without}{f': {out}' if out else ''}", err=True)
    low = sum(need.confidence is Confidence.LOW for each in found if not each.refused for need in each.needs)
    if low and accept_low:
        click.echo(f"warning: {low} with low confidence: record for a week before you rely on the file", err=True)
    text = quota_file.write(every, choices, target, recorded.circumstances, wanted.outside())
    return text, 0 if accept_low else low


def _merged(
    present: "Present",
    found: "Sequence[Recommendation]",
    choices: "Choices",
    recorded: "Recording",
    wanted: "Wanted",
    *,
    propose: bool,
    accept_low: bool,
) -> tuple[str, int]:
    """Return the present file with what is recommended in it, and how many limits are left for low confidence."""
    from analysis.recommend.present import Fate, lines, merged, summary, verdicts

    of = verdicts(present.policy, found, choices, accept_low=accept_low, propose=propose)
    for note in recorded.circumstances.notes():
        click.echo(f"note: {note}", err=True)
    for line in lines(of, propose=propose):
        click.echo(line, err=True)
    text = merged(present, of, propose=propose)
    click.echo(f"{present.path}: {summary(of, present.policy, wanted.outside())}", err=True)
    return text, sum(each.fate is Fate.LOW for each in of)
