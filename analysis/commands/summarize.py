"""``sluice analyze summarize``."""

import time

import click

from analysis import options
from analysis.spark import session
from analysis.spark.progress import to_stderr
from analysis.spark.session import SparkSettings


@click.command()
@options.warehouse_option
@options.older_option("Only days that ended so long ago (UTC).")
@options.grace_option
@options.dry_run_option
@options.spark_options
def command(warehouse: str, older_s: int, grace_s: int, spark: SparkSettings, *, dry_run: bool) -> None:
    """Sum up days that are over, each once: a report of many days then reads the rows of what is new.

    After `compact`, by cron. Beside running ingestions and readers; it may be killed at any moment. A day that changes
    is read from its rows again, and summed up again by the next run.
    """
    running = session.start("summarize", spark)
    from analysis.upkeep.summing import SummingUp, SumUpRequest

    request = SumUpRequest(older_s, grace_s, dry_run)
    found = SummingUp(running, warehouse, request, to_stderr, time.time).run()  # noqa: TID251  it looks at dates
    days = "day" if found.days == 1 else "days"
    there = f"; {found.there:,} were there" if found.there else ""
    if dry_run:
        click.echo(f"{warehouse}: {found.days:,} {days} would be summed up{there}")
    elif found.days:
        made = f"{found.days:,} {days}, {found.rows:,} rows: {found.size_bytes / 1e6:,.1f} MB of sums"
        click.echo(f"{warehouse}: {made}{there}")
    else:
        click.echo(f"{warehouse}: nothing to sum up{there}")
    if found.removed:
        click.echo(f"{warehouse}: {found.removed:,} removed that were not of their day any more")
