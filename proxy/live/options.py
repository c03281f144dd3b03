"""Options of the commands that ask a running proxy. Imports little: it is read with each start of the command line."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_URL: Final = "http://127.0.0.1:9404"
MOST_ROWS: Final = 1000
_FILE: Final[click.Path] = click.Path(path_type=Path)


def admin_options(
    command: Command, said: str = f"The admin port of the proxy. Default: that of --config, else {DEFAULT_URL}."
) -> Command:
    """Add ``--admin``, and how it is asked (``--token-file``, ``--ca``), to a command."""
    token = "The token of one who may read. Default: a token_file of the configuration, if it needs one."  # noqa: S105  a text
    ca = "Authorities to verify the admin port by (PEM). Default: the configuration's certificate, else the system's."
    command = click.option("--ca", metavar="FILE", type=_FILE, help=ca)(command)
    command = click.option("--token-file", metavar="FILE", type=_FILE, help=token)(command)
    return click.option("--admin", metavar="URL", help=said)(command)


def api_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say which proxy is asked to a command: its first argument is that proxy's API."""

    @wraps(command)
    def asking(
        *, config_path: Path | None, admin: str | None, token_file: Path | None, ca: Path | None, **more: Any
    ) -> None:
        from proxy.live.api import open_api

        all_instances = more.pop("all_instances")
        command(open_api(config_path, admin, token_file, ca, all_instances=all_instances), **more)

    every = click.option("--all", "all_instances", is_flag=True, help="Ask for all instances, not for this one alone.")
    said = "The configuration file (sluice.yaml) that names the admin port."
    config = click.option("-c", "--config", "config_path", metavar="FILE", type=_FILE, help=said)
    return config(admin_options(every(asking)))


def list_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add those, and what to list of clients, to a command."""
    for option in (
        click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True),
        click.option(
            "--limit", type=click.IntRange(1, MOST_ROWS), default=100, show_default=True, help="The most rows to show."
        ),
        click.option("--filter", "q", metavar="TEXT", help="Only users and client-ids that contain this text."),
        click.option("--sort", metavar="COLUMN", help="Sort by this column; -COLUMN for the largest first."),
    ):
        command = option(command)
    return api_options(command)
