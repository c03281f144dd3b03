"""``sluice analyze gold``."""

import click

from analysis import options
from analysis.spark import session
from analysis.spark.session import SparkSettings


@click.command()
@options.warehouse_option
@options.spark_options
def command(warehouse: str, spark: SparkSettings) -> None:
    """Make gold, the tables of reports, of hours with new rows: as `ingest` does at its end, for schedulers.

    Waits for other programs that write to the warehouse.
    """
    running = session.start("gold", spark)
    from analysis.gold.build import make

    hours = make(running, warehouse)
    click.echo(f"{warehouse}: gold of {hours:,} hour{'s' * (hours != 1)} made")
