"""``sluice analyze whatif``."""

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from analysis import options
from analysis.answering import Answering
from analysis.errors import AnalysisError
from analysis.spark import session
from analysis.spark.session import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from analysis.whatif.job import WhatIf
    from analysis.whatif.scenarios import Scenario


@click.command(cls=Answering)
@options.warehouse_option
@click.option(
    "--quotas",
    "quotas_paths",
    required=True,
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The proposed quotas, as the proxy takes them; may be repeated, to compare several.",
)
@options.period_options
@click.option("--out", metavar="DIR", help="Keep all figures (Parquet) and whatif.html there.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
@click.option("--top", default=20, show_default=True, type=click.IntRange(0), help="How many counters are printed.")
@click.option("--fail-if-throttled", is_flag=True, help="Exit with 1 if anybody would be, surely or possibly.")
@options.spark_options
def command(
    warehouse: str,
    quotas_paths: tuple[Path, ...],
    begin: datetime | None,
    end: datetime | None,
    out: str | None,
    top: int,
    spark: SparkSettings,
    *,
    as_json: bool,
    fail_if_throttled: bool,
) -> None:
    """Say who would be throttled under other quotas, for how long, before and after.

    Recorded demand is replayed against each file; what it holds back is carried over (docs/analysis-whatif.md).
    """
    scenarios = [_scenario(path) for path in quotas_paths]
    running = session.start("whatif", spark)
    from analysis.replay import recording
    from analysis.spark.progress import Progress
    from analysis.table import warehouse as stored
    from analysis.whatif import comparison
    from analysis.whatif.job import whatif

    with Progress(running, "whatif", steps=2) as progress:
        progress.step("who used what")
        recorded = recording.read(stored.usage(running, warehouse, begin, end))
        progress.step("replay")
        found = whatif(recorded, scenarios)
    if out is not None:
        _keep(running, found, out)
    click.echo(comparison.as_json(found) if as_json else comparison.text(found, top))
    sums = [comparison.totals(found, scenario.name) for scenario in scenarios]
    if fail_if_throttled and any(each.throttled or each.possibly_throttled for each in sums):
        sys.exit(1)


def _scenario(path: Path) -> "Scenario":
    from analysis.whatif.scenarios import Scenario, not_replayed
    from config.problems import ConfigError
    from quotas.stores.file import load

    try:
        loaded = load(path)
    except ConfigError as error:
        raise AnalysisError(str(error)) from None
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}", err=True)
    unknown = not_replayed(loaded.policy)
    for entity, words in unknown.items():
        click.echo(
            f"warning: {path}:{loaded.lines[entity]}: {' and '.join(words)} of {entity.describe()} "
            f"{'is' if len(words) == 1 else 'are'} not replayed: whom this quota holds is left out",
            err=True,
        )
    return Scenario(str(path), loaded.policy, frozenset(unknown))


def _keep(running: "SparkSession", found: "WhatIf", out: str) -> None:
    from analysis.spark.folder import Folder
    from analysis.whatif.page import render

    running.createDataFrame(found.units).coalesce(1).write.mode("overwrite").parquet(f"{out.rstrip('/')}/whatif")
    Folder(running, out).write("whatif.html", render(found))
    click.echo(f"{out.rstrip('/')}/whatif.html", err=True)
