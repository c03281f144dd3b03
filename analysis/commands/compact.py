"""``sluice analyze compact``."""

import time

import click

from analysis import options
from analysis.page.words import counted
from analysis.spark import session
from analysis.spark.progress import to_stderr
from analysis.spark.session import SparkSettings


@click.command()
@options.warehouse_option
@options.older_option("Only hours that ended so long ago, and never the newest.")
@click.option(
    "--target-mb",
    type=click.IntRange(1, 1000),
    default=100,
    show_default=True,
    metavar="N",
    help="About how large files become; each must fit into a worker's memory.",
)
@options.grace_option
@options.dry_run_option
@options.spark_options
def command(warehouse: str, older_s: int, target_mb: int, grace_s: int, spark: SparkSettings, *, dry_run: bool) -> None:
    """Make few large files of the many small ones of closed hours.

    Beside running ingestions and readers; it may be killed at any moment, and the next run goes on.
    """
    running = session.start("compact", spark)
    from analysis.table import warehouse as stored
    from analysis.upkeep.compaction import Compaction, CompactRequest

    request = CompactRequest(older_s, target_mb * 1_000_000, grace_s, dry_run)
    folders = stored.folders(running, warehouse)
    found = Compaction(*folders, request, to_stderr, time.time).run()  # noqa: TID251  of a program that looks at dates
    hours, files = counted(found.hours, "hour"), counted(found.files, "file")
    size = f"{found.size_bytes / 1e6:,.1f} MB"
    if not found.hours:
        click.echo(f"{warehouse}: nothing to compact")
    elif dry_run:
        click.echo(f"{warehouse}: {hours} of {files}, {size}")
    else:
        after = f"{found.files_made:,} of {found.bytes_made / 1e6:,.1f} MB"
        click.echo(f"{warehouse}: {hours}, {counted(found.rows, 'row')}: {files} of {size} became {after}")
    if found.removed_bytes:
        click.echo(f"{warehouse}: {found.removed_bytes / 1e6:,.1f} MB removed that were aside")
