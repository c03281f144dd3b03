"""``sluice analyze report``."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from analysis import options
from analysis.errors import AnalysisError
from analysis.report import place
from analysis.spark import session
from analysis.spark.session import SparkSettings

if TYPE_CHECKING:
    from analysis.metrics.rates import Rates

_A_DAY: Final = timedelta(days=1)
_LONGEST_GAP_S: Final = 1e9
"""Longer than any period."""


@click.command()
@options.warehouse_option
@options.period_options
@click.option(
    "--out",
    metavar="DIR",
    help="Where the report goes, as a directory report=<period>; if not said, DIR-reports, beside the warehouse.",
)
@click.option(
    "--rates", type=click.Path(path_type=Path), metavar="FILE", help="What things cost (YAML); else bytes only."
)
@click.option(
    "--gap",
    "gap_s",
    type=options.FiniteRange(0, _LONGEST_GAP_S),
    metavar="SECONDS",
    help="Throttles no longer apart than this are one episode: the window of enforcement, if not said.",
)
@options.against_option
@click.option(
    "--client",
    "client",
    metavar="NAMES",
    help="The page of one client instead: user=alice, client-id=web, user=alice,client-id=web or ip=10.0.0.5.",
)
@options.spark_options
def command(
    warehouse: str,
    begin: datetime | None,
    end: datetime | None,
    out: str | None,
    rates: Path | None,
    gap_s: float | None,
    against: options.Against,
    client: str | None,
    spark: SparkSettings,
) -> None:
    """Say who was throttled, how close the limits are, who is noisy, where it goes, and what it costs.

    Of the last 24 hours that are stored, if no period is given. Tables as Parquet, chargeback.csv, and report.html to
    look at.
    """
    gap_ms = None if gap_s is None else round(gap_s * 1000)
    out = place.chosen(out, warehouse)
    if client is not None:
        if rates is not None:
            raise click.UsageError("--rates are for the report of all: the page of one client has no costs")
        if against is not None:
            raise click.UsageError("--against is for the report of all: the page of one client has the period before")
        _one_client(client, warehouse, (begin, end), out, gap_ms, spark)
        return
    prices = _rates(rates)
    running = session.start("report", spark)
    from analysis.report import comparing, job
    from analysis.table import warehouse as stored

    if end is None and begin is None:
        end = stored.newest_end(running, warehouse, datetime.now(UTC))
    if begin is None and end is not None:
        begin = end - _A_DAY
    other = None
    if against != options.NOTHING:
        other = comparing.Against(lambda since, until: stored.usage(running, warehouse, since, until), against)
    wanted = job.ReportRequest(begin, end, out, prices, gap_ms, other)
    usage = stored.usage(running, warehouse, begin, end)
    if usage.kept_days:
        days = "day is" if len(usage.kept_days) == 1 else "days are"
        click.echo(f"{len(usage.kept_days):,} {days} summed up already (summarize)", err=True)
    made = job.run(usage, wanted)
    click.echo(made.sentence)
    click.echo(made.html)


def _one_client(
    client: str,
    warehouse: str,
    period: tuple[datetime | None, datetime | None],
    out: str,
    gap_ms: int | None,
    spark: SparkSettings,
) -> None:
    from analysis.client import asked

    wanted = asked.parse(client)
    running = session.start("client", spark)
    from analysis.client import job
    from analysis.table import warehouse as stored

    first, _ = stored.bounds(running, warehouse)
    end = period[1] or stored.newest_end(running, warehouse, datetime.now(UTC))
    begin = period[0] or (end - _A_DAY)
    usage = stored.usage(running, warehouse, begin, end)
    earlier = begin - (end - begin)
    both = stored.usage(running, warehouse, earlier, end) if first < begin else None
    made = job.run(usage, both, job.ClientRequest(wanted, begin, end, out, gap_ms, first))
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
