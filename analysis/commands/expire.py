"""``sluice analyze expire``."""

import time

import click

from analysis import options
from analysis.page.words import counted
from analysis.spark import session
from analysis.spark.progress import to_stderr
from analysis.spark.session import SparkSettings


@click.command()
@options.warehouse_option
@click.option(
    "--keep",
    "keep_s",
    required=True,
    callback=options.seconds,
    metavar="TIME",
    help="What ended longer ago goes: 90d, 12h.",
)
@options.grace_option
@options.dry_run_option
@options.spark_options
def command(warehouse: str, keep_s: int, grace_s: int, spark: SparkSettings, *, dry_run: bool) -> None:
    """Remove old hours, old rejected documents, old sums, and old reports beside the warehouse; never the newest hour.

    The time is counted back from the newest hour stored, or from now if that is earlier.
    """
    running = session.start("expire", spark)
    from analysis.report import place
    from analysis.spark.folder import Folder
    from analysis.table import warehouse as stored
    from analysis.upkeep.expiry import ExpireRequest, Expiry

    request = ExpireRequest(keep_s, grace_s, dry_run)
    whole, usage = stored.folders(running, warehouse)
    beside = place.beside(warehouse)
    reports = [whole] if beside is None else [whole, Folder(running, beside)]
    found = Expiry(whole, usage, reports, request, to_stderr, time.time).run()  # noqa: TID251  who looks at dates
    what = (
        f"{counted(found.hours, 'hour')} of {found.size_bytes / 1e6:,.1f} MB, "
        f"{counted(found.rejected, 'batch', 'batches')} of rejected documents, "
        f"{counted(found.summaries, 'day')} of sums and {counted(found.reports, 'report')}"
    )
    went = "would go" if dry_run else "went"
    click.echo(f"{warehouse}: before {found.before:%Y-%m-%d %H:%M} UTC: {what} {went}")
    if found.removed_bytes:
        click.echo(f"{warehouse}: {found.removed_bytes / 1e6:,.1f} MB removed that were aside")
