"""``sluice calibrate``, from the settings to the exit status."""

import asyncio
from pathlib import Path
from typing import Final

import click

from config.settings import Settings
from proxy.brokers.persistent_connection import access_by
from proxy.calibrate.calibration import calibrate
from proxy.calibrate.cluster import CalibrationError
from proxy.manage.target import access_to

EXIT_FAILED: Final = 1
EXIT_STOPPED: Final = 130


def run(settings: Settings, command_config: Path | None, broker: int | None) -> int:
    """Measure, print what was found, and return the exit status. Raises click.UsageError."""
    access = access_by(settings.cluster)
    if command_config is not None:
        access = access_to(",".join(map(str, access.addresses)), command_config)
    try:
        found = asyncio.run(calibrate(access, settings.request_costs, settings.quotas.window, broker))
    except CalibrationError as error:
        click.echo(f"not calibrated: {error}", err=True)
        return EXIT_FAILED
    except KeyboardInterrupt:
        click.echo("stopped; what was made for it is removed", err=True)
        return EXIT_STOPPED
    click.echo("\n".join(found.lines()))
    return 0
