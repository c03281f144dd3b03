"""``sluice analyze compact``."""

import time
from dataclasses import replace

import click

from analysis import options
from analysis.spark import session
from analysis.spark.progress import to_stderr
from analysis.spark.session import SparkSettings


@click.command()
@options.warehouse_option
@options.older_option("Only days that ended so long ago (UTC), and never the newest.")
@options.spark_options
def command(warehouse: str, older_s: int, spark: SparkSettings) -> None:
    """Make few large files of the many small ones of days that are over.

    Beside running ingestions, but not beside programs that read rows; it may be killed at any moment, and the next run
    goes on.
    """
    running = session.start("compact", replace(spark, by_rows=True))
    from analysis.upkeep.compaction import Compaction

    found = Compaction(running, warehouse, to_stderr, time.time).run(older_s)  # noqa: TID251  dates
    if not found.days:
        click.echo(f"{warehouse}: nothing to compact")
        return
    click.echo(
        f"{warehouse}: {found.days:,} day{'s' * (found.days != 1)}, {found.batches:,} batches of "
        f"{found.size_bytes / 1e6:,.1f} MB became {found.batches_made:,} of {found.bytes_made / 1e6:,.1f} MB"
    )
