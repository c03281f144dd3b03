"""Options of the commands that ask a running proxy. Imports little: it is read with each start of the command line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_URL: Final = "http://127.0.0.1:9404"
MOST_ROWS: Final = 1000

admin_option = click.option(
    "--admin", metavar="URL", help=f"The admin port of the proxy. Default: that of --config, else {DEFAULT_URL}."
)
all_option = click.option("--all", "all_instances", is_flag=True, help="Ask for all instances, not for this one alone.")

_token_option = click.option(
    "--token-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The token of one who may read. Default: a token_file of the configuration, if it needs one.",
)


def api_options(command: Command) -> Command:
    """Add the options of ``open_api`` to a command."""
    config = click.option(
        "-c",
        "--config",
        "config_path",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="The configuration file (sluice.yaml) that names the admin port.",
    )
    return config(admin_option(_token_option(all_option(command))))


def list_options(command: Command) -> Command:
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
