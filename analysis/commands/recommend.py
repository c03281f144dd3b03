"""``sluice analyze recommend``."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from analysis import options
from analysis.errors import AnalysisError
from analysis.spark import session
from analysis.spark.session import SparkSettings

if TYPE_CHECKING:
    from analysis.kernel.search import Target


def _bytes(_: click.Context, __: click.Parameter, value: str) -> float:
    from config.problems import InvalidValue
    from config.units import parse_bytes

    try:
        return float(parse_bytes(value))
    except InvalidValue as error:
        raise click.BadParameter(f"{error.message}; {error.hint}") from None


@click.command()
@options.warehouse_option
@click.option(
    "--target",
    required=True,
    metavar="TEXT",
    help='What is to hold: "p99 throttle < 100 ms", "p95 delay < 2 s" or "throttled share < 0.1 %".',
)
@click.option(
    "--per",
    type=click.Choice(["user", "client-id", "user,client-id"]),
    default="user",
    show_default=True,
    help="Whom quotas are for.",
)
@click.option("--entities", multiple=True, metavar="NAME", help="Only these, with * and ?; may be repeated.")
@click.option(
    "--headroom",
    default=0.15,
    show_default=True,
    type=click.FloatRange(0),
    help="How much more than needed, as a share.",
)
@click.option("--floor", default="1kB", show_default=True, callback=_bytes, metavar="BYTES", help="The least quota.")
@options.period_options
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="FILE", help="Write the quota file there, not to stdout."
)
@options.spark_options
def command(
    warehouse: str,
    target: str,
    per: str,
    entities: tuple[str, ...],
    headroom: float,
    floor: float,
    begin: datetime | None,
    end: datetime | None,
    out: Path | None,
    spark: SparkSettings,
) -> None:
    """Write the smallest quotas under which what was recorded meets a target, as a quota file that explains itself."""
    aim = _target(target)
    running = session.start("recommend", spark)
    from analysis.recommend import quota_file
    from analysis.recommend.job import Choices, Per, recommend
    from analysis.replay import recording
    from analysis.spark.progress import Progress
    from analysis.table import warehouse as stored

    choices = Choices(aim, Per(per), headroom, floor, entities)
    with Progress(running, "recommend", steps=2) as progress:
        progress.step("who used what")
        recorded = recording.read(stored.usage(running, warehouse, begin, end))
        progress.step("search")
        found = recommend(recorded, choices)
    text = quota_file.write(found, choices, target, recorded.circumstances)
    if out is None:
        click.echo(text, nl=False)
    else:
        _write(out, text)
    refused = sum(bool(each.refused) for each in found)
    without = f", and {refused} without one: the file says why" if refused else ""
    click.echo(f"quotas for {len(found) - refused} of {len(found)}{without}{f': {out}' if out else ''}", err=True)


def _target(written: str) -> "Target":
    from analysis.kernel.search import parse_target
    from config.problems import InvalidValue

    try:
        return parse_target(written)
    except InvalidValue as error:
        raise click.BadParameter(f"{error.message}; {error.hint}", param_hint="--target") from None


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise AnalysisError(f"{path} cannot be written: {error.strerror}") from None
