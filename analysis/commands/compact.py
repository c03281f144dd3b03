"""``sluice analyze compact``."""

import time
from dataclasses import replace

import click

from analysis import options
from analysis.spark import session
from analysis.spark.progress import to_stderr
from analysis.spark.session import SparkSettings
from quotas.texts import size


@click.command()
@options.warehouse_option
@click.option(
    "--older-than",
    "older_s",
    default="2h",
    show_default=True,
    callback=options.seconds,
    metavar="TIME",
    help="Only days that ended longer ago (UTC), and never the newest.",
)
@options.spark_options
def command(warehouse: str, older_s: int, spark: SparkSettings) -> None:
    """Merge the many small files of days that are over into few large ones.

    May run beside ingestion, but not beside programs that read rows. The next run completes one that was killed.
    """
    running = session.start("compact", replace(spark, by_rows=True))
    from analysis.upkeep.compaction import Compaction

    found = Compaction(running, warehouse, to_stderr, time.time).run(older_s)  # noqa: TID251  dates
    if not found.days:
        click.echo(f"{warehouse}: nothing to compact")
        return
    click.echo(
        f"{warehouse}: {found.days:,} day{'s' * (found.days != 1)}, {found.batches:,} batches of "
        f"{size(found.size_bytes)} became {found.batches_made:,} of {size(found.bytes_made)}"
    )
