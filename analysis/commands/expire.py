"""``sluice analyze expire``."""

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
    "--keep",
    "keep_s",
    required=True,
    callback=options.seconds,
    metavar="TIME",
    help="Remove hours that ended longer ago: 90d, 12h.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@options.spark_options
def command(warehouse: str, keep_s: int, spark: SparkSettings, *, dry_run: bool) -> None:
    """Remove old hours, with their gold, and old rejected documents; never the newest hour.

    --keep is counted back from the newest hour stored, or from now if that is earlier.
    """
    running = session.start("expire", spark)
    from analysis.upkeep import expiry

    found = expiry.expire(running, warehouse, keep_s, to_stderr, time.time, dry_run=dry_run)  # noqa: TID251  dates
    hours = f"{found.hours:,} hour{'s' * (found.hours != 1)} of {size(found.size_bytes)}"
    rejected = f"{found.rejected:,} batch{'es' * (found.rejected != 1)} of rejected documents"
    went = "would go" if dry_run else "went"
    click.echo(f"{warehouse}: before {found.before:%Y-%m-%d %H:%M} UTC: {hours}, {rejected} {went}")
