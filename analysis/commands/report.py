"""``sluice analyze report``."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from analysis import options
from analysis.errors import AnalysisError
from analysis.spark import session
from analysis.spark.session import SparkSettings

if TYPE_CHECKING:
    from analysis.metrics.rates import Rates

_A_DAY: Final = timedelta(days=1)


@click.command()
@options.warehouse_option
@options.period_options
@click.option("--out", metavar="DIR", help="Where the report goes, as a directory report=<period>: the warehouse.")
@click.option(
    "--rates", type=click.Path(path_type=Path), metavar="FILE", help="What things cost (YAML); else bytes only."
)
@click.option(
    "--gap",
    "gap_s",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="Throttles no longer apart than this are one episode: the window of enforcement, if not said.",
)
@options.against_option
@options.spark_options
def command(
    warehouse: str,
    begin: datetime | None,
    end: datetime | None,
    out: str | None,
    rates: Path | None,
    gap_s: float | None,
    against: options.Against,
    spark: SparkSettings,
) -> None:
    """Say who was throttled, how close the limits are, who is noisy, where it goes, and what it costs.

    Of the last 24 hours that are stored, if no period is given. Tables as Parquet, chargeback.csv, and report.html to
    look at.
    """
    prices = _rates(rates)
    running = session.start("report", spark)
    from analysis.report import comparing, job
    from analysis.table import warehouse as stored

    if end is None and begin is None:
        end = stored.bounds(running, warehouse)[1]
    if begin is None and end is not None:
        begin = end - _A_DAY
    other = None
    if against != options.NOTHING:
        other = comparing.Against(lambda since, until: stored.usage(running, warehouse, since, until), against)
    gap_ms = None if gap_s is None else round(gap_s * 1000)
    wanted = job.ReportRequest(begin, end, out or warehouse, prices, gap_ms, other)
    made = job.run(stored.usage(running, warehouse, begin, end), wanted)
    click.echo(made.sentence)
    click.echo(made.html)


def _rates(path: Path | None) -> "Rates":
    from analysis.metrics.rates import Rates, load
    from config.problems import ConfigError

    if path is None:
        return Rates()
    try:
        return load(path)
    except ConfigError as error:
        raise AnalysisError(str(error)) from None
