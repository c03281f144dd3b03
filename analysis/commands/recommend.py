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
    per: str,
    entities: tuple[str, ...],
    headroom: float,
    floor: float,
    begin: datetime | None,
    end: datetime | None,
    out: Path | None,
    spark: SparkSettings,
    *,
    force: bool,
) -> None:
    """Write the smallest quotas under which what was recorded meets a target, as a quota file that explains itself."""
    aim = _target(target)
    _refuse_to_replace(out, force=force)
    running = session.start("recommend", spark)
    from analysis.kernel.search import Confidence
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
        _refuse_to_replace(out, force=force)
        _write(out, text)
    refused = sum(bool(each.refused) for each in found)
    without = f", and {refused} without one: the file says why" if refused else ""
    click.echo(f"quotas for {len(found) - refused} of {len(found)}{without}{f': {out}' if out else ''}", err=True)
    low = sum(need.confidence is Confidence.LOW for each in found if not each.refused for need in each.needs)
    if low:
        click.echo(f"warning: {low} with low confidence: record for a week before you rely on the file", err=True)


def _target(written: str) -> "Target":
    from analysis.kernel.search import parse_target
    from config.problems import InvalidValue

    try:
        return parse_target(written)
    except InvalidValue as error:
        raise click.BadParameter(f"{error.message}; {error.hint}", param_hint="--target") from None


def _refuse_to_replace(path: Path | None, *, force: bool) -> None:
    """Keep a quota file that may be in force from being lost: what is recommended knows nothing of what it says."""
    if path is not None and not force and path.exists():
        raise AnalysisError(
            f"{path} is there already: write to another file, compare, and take over what you want; --force replaces it"
        )


def _write(path: Path, text: str) -> None:
    """Write all of a file or nothing: a proxy that reads it meanwhile sees the old one or the new one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.new")
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise AnalysisError(f"{path} cannot be written: {error.strerror}") from None
