"""Options of the commands that ask a running proxy. Imports little: it is read with each start of the command line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_URL: Final = "http://127.0.0.1:9404"
MOST_ROWS: Final = 1000


def file_option(*names: str, help_text: str, required: bool = False) -> Callable[[Command], Command]:
    """Return an option that takes the path of a file."""
    return click.option(*names, metavar="FILE", type=click.Path(path_type=Path), help=help_text, required=required)


def with_options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return a decorator that adds options to a command, shown in this order."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


admin_option = click.option(
    "--admin", metavar="URL", help=f"The admin port of the proxy. Default: that of --config, else {DEFAULT_URL}."
)
api_options: Callable[[Command], Command] = with_options(
    file_option(
        "-c", "--config", "config_path", help_text="The configuration file (sluice.yaml) that names the admin port."
    ),
    admin_option,
    file_option(
        "--token-file",
        help_text="The token of one who may read. Default: a token_file of the configuration, if it needs one.",
    ),
    click.option("--all", "all_instances", is_flag=True, help="Ask for all instances, not for this one alone."),
)
"""The options of ``open_api``."""
list_options: Callable[[Command], Command] = with_options(
    api_options,
    click.option("--sort", metavar="COLUMN", help="Sort by this column; -COLUMN for the largest first."),
    click.option("--filter", "q", metavar="TEXT", help="Only users and client-ids that contain this text."),
    click.option(
        "--limit", type=click.IntRange(1, MOST_ROWS), default=100, show_default=True, help="The most rows to show."
    ),
    click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True),
)
"""The options of ``open_api``, and which rows to list."""
