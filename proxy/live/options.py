"""Options of the commands that ask a running proxy. Imports little: it is read with each start of the command line."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_URL: Final = "http://127.0.0.1:9404"
MOST_ROWS: Final = 1000


def file_option(*names: str, help_text: str, required: bool = False) -> Callable[[Command], Command]:
    return click.option(*names, metavar="FILE", type=click.Path(path_type=Path), help=help_text, required=required)


def with_options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return a decorator that adds options to a command, shown in this order."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def admin_options(
    said: str = f"The admin port of the proxy. Default: that of --config, else {DEFAULT_URL}.",
) -> Callable[[Command], Command]:
    """Return a decorator that adds ``--admin``, and how it is asked: ``--token-file``, ``--ca``."""
    return with_options(
        click.option("--admin", metavar="URL", help=said),
        file_option(
            "--token-file",
            help_text="The token of one who may read. Default: a token_file of the configuration, if it needs one.",
        ),
        file_option(
            "--ca",
            help_text="Authorities to verify the admin port by (PEM). Default: the configuration's certificate, else "
            "the system's.",
        ),
    )


def api_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say which proxy is asked to a command: its first argument is that proxy's API."""

    @wraps(command)
    def asking(
        *, config_path: Path | None, admin: str | None, token_file: Path | None, ca: Path | None, **more: Any
    ) -> None:
        from proxy.live.api import open_api

        all_instances = more.pop("all_instances")
        command(open_api(config_path, admin, token_file, ca, all_instances=all_instances), **more)

    return with_options(
        file_option(
            "-c", "--config", "config_path", help_text="The configuration file (sluice.yaml) that names the admin port."
        ),
        admin_options(),
        click.option("--all", "all_instances", is_flag=True, help="Ask for all instances, not for this one alone."),
    )(asking)


def list_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add those, and what to list of clients, to a command."""
    return with_options(
        api_options,
        click.option("--sort", metavar="COLUMN", help="Sort by this column; -COLUMN for the largest first."),
        click.option("--filter", "q", metavar="TEXT", help="Only users and client-ids that contain this text."),
        click.option(
            "--limit", type=click.IntRange(1, MOST_ROWS), default=100, show_default=True, help="The most rows to show."
        ),
        click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True),
    )(command)
