"""``sluice analyze report``."""

from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import click

from analysis import options


@click.command()
@options.warehouse_option
@options.period_options
@options.zone_option
@click.option(
    "--out",
    metavar="DIR",
    help="The parent of the report's directory, report=<period>; default: DIR-reports, beside the warehouse.",
)
@click.option(
    "--rates", type=click.Path(path_type=Path), metavar="FILE", help="Prices (YAML); without it, quantities alone."
)
@click.option(
    "--client",
    metavar="NAMES",
    help="The report of one client: user=alice, client-id=web, user=alice,client-id=web or ip=10.0.0.5.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Write each table as CSV, too; chargeback.csv is always written.")
@click.option("--json", "as_json", is_flag=True, help="Print all tables as one JSON object, with the path of the page.")
def command(
    warehouse: str,
    begin: datetime | None,
    end: datetime | None,
    zone: ZoneInfo,
    out: str | None,
    rates: Path | None,
    client: str | None,
    as_csv: bool,
    as_json: bool,
) -> None:
    """Report who was throttled and by whose use, how close the limits are, where traffic goes, and what it costs.

    Covers the last 24 hours that are stored, unless a period is given. Reads gold, the tables that `ingest` makes,
    without Spark. Writes report.html, its tables as Parquet, and chargeback.csv.
    """
    out = out or options.beside(warehouse)
    options.refuse_table(out, warehouse)
    from analysis import client_filter
    from analysis.report import job
    from analysis.report.rates import load

    wanted = None if client is None else client_filter.parse(client)
    prices = None if rates is None else load(rates)
    request = job.ReportRequest(warehouse, begin, end, out, prices, zone, wanted, as_csv, as_json)
    click.echo(job.run(request, datetime.now(UTC), lambda line: click.echo(line, err=True)))
