"""``sluice analyze compact``."""

import time

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

    Waits for other programs that write to the warehouse; ingestion goes on afterwards. Not for the time in which other
    engines read rows. The next run completes one that was killed.
    """
    running = session.start("compact", spark)
    from analysis.upkeep import compaction

    found = compaction.compact(running, warehouse, older_s, to_stderr, time.time)  # noqa: TID251  dates
    if not found.days:
        click.echo(f"{warehouse}: nothing to compact")
        return
    click.echo(
        f"{warehouse}: {found.days:,} day{'s' * (found.days != 1)}, {found.batches:,} batches of "
        f"{size(found.size_bytes)} became {found.batches_made:,} of {size(found.bytes_made)}"
    )
