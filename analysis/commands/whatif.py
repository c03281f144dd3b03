"""``sluice analyze whatif``."""

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from analysis import options
from analysis.spark.session import SparkSettings

if TYPE_CHECKING:
    from analysis.whatif.scenarios import Scenario


@click.command()
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
@click.option("--out", metavar="DIR", help="Write all figures (Parquet) and whatif.html there.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
@click.option("--top", default=20, show_default=True, type=click.IntRange(0), help="How many counters are printed.")
@click.option("--fail-if-throttled", is_flag=True, help="Exit with 1 if any client would, or might, be throttled.")
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
    """Show which clients would be throttled under proposed quotas, and for how long, before and after.

    Gold tells which clients never exceeded the proposed limit. The rows of all others are replayed against each file;
    delayed traffic is carried forward (docs/analysis.md).
    """
    from analysis.demand import sums
    from analysis.demand.rows import Rows
    from analysis.warehouse import Period
    from analysis.whatif import comparison
    from analysis.whatif.job import whatif
    from analysis.whatif.output import Output

    if out is not None:
        options.refuse_table(out, warehouse)
    output = None if out is None else Output.at(out)
    scenarios = [_scenario(path) for path in quotas_paths]
    period = Period.around(begin, end)
    found = whatif(sums.read(warehouse, period), scenarios, Rows("whatif", spark, warehouse, period))
    if output is not None:
        click.echo(output.write(found), err=True)
    click.echo(comparison.as_json(found) if as_json else comparison.text(found, top))
    totals = [comparison.totals(found, scenario.name) for scenario in scenarios]
    if fail_if_throttled and any(each.throttled or each.possibly_throttled for each in totals):
        sys.exit(1)


def _scenario(path: Path) -> "Scenario":
    from analysis.whatif.scenarios import Scenario, rules_not_replayed
    from quotas.stores.file import load

    loaded = load(path)
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}", err=True)
    for entity, words in rules_not_replayed(loaded.policy).items():
        click.echo(
            f"warning: {path}:{loaded.lines[entity]}: {' and '.join(words)} of {entity.describe()} "
            f"{'is' if len(words) == 1 else 'are'} not replayed, and left out of the answer",
            err=True,
        )
    return Scenario(str(path), loaded.policy)
