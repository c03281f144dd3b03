"""The command line. Each command imports what it needs when it runs: ``sluice health`` is called every few seconds."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from proxy import __version__

if TYPE_CHECKING:
    from config.problems import Problem
    from config.settings import Settings

_Command = TypeVar("_Command", bound=Callable[..., Any] | click.Command)

EXIT_UNHEALTHY: Final = 1
EXIT_CONFIG: Final = 2  # also click's own, for a wrong command line


def _config_option(*, required: bool = True) -> Callable[[_Command], _Command]:
    return click.option(
        "-c",
        "--config",
        "config_path",
        required=required,
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="The configuration file (sluice.yaml).",
    )


@click.group()
@click.version_option(__version__, message="sluice %(version)s")
def cli() -> None:
    """A throttling proxy that speaks Kafka's protocol."""


@cli.command()
@_config_option()
def run(config_path: Path) -> None:
    """Run the proxy until SIGTERM; SIGHUP loads the quotas again."""
    settings = _settings(config_path)
    from proxy import app, logs

    logs.configure(settings.log.level, settings.log.format)
    sys.exit(app.run(settings))


@cli.command()
@_config_option()
def check(config_path: Path) -> None:
    """Print every problem of a configuration and of the quota file it names."""
    from config.loader import load_settings, named_quota_file
    from config.problems import ConfigError
    from quotas.stores.file import load

    problems: list[Problem] = []
    listeners = quotas = 0
    try:
        listeners = len(load_settings(config_path).listeners)
    except ConfigError as error:
        problems += error.problems
    try:
        if (quota_file := named_quota_file(config_path)) is not None:
            loaded = load(quota_file)
            quotas = len(loaded.policy.limits)
            for warning in loaded.warnings:
                click.echo(f"warning: {warning}")
    except ConfigError as error:
        problems += error.problems
    for problem in problems:
        click.echo(problem)
    if problems:
        sys.exit(EXIT_CONFIG)
    click.echo(f"{config_path}: ok ({_counted(quotas, 'quota')}, {_counted(listeners, 'listener')})")


@cli.command()
@_config_option(required=False)
@click.option("--url", metavar="URL", help="Ask this admin port, as in http://127.0.0.1:9404, and read no file.")
@click.option("--live", is_flag=True, help="Ask whether it runs (/livez), not whether it serves (/readyz).")
def health(config_path: Path | None, url: str | None, *, live: bool) -> None:
    """Ask a running proxy how it is: exit 0 if it is well, else print why and exit 1."""
    from proxy.health import admin_url, ask

    if (config_path is None) == (url is None):
        raise click.UsageError("give either --config or --url")
    if url is None and config_path is not None:
        url = admin_url(_settings(config_path, EXIT_UNHEALTHY).admin.bind)
    try:
        well, answer = ask(str(url), "/livez" if live else "/readyz")
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--url") from None
    click.echo(answer)
    sys.exit(0 if well else EXIT_UNHEALTHY)


def _settings(config_path: Path, exit_status: int = EXIT_CONFIG) -> "Settings":
    """Load the configuration, or end the command with all that is wrong with it."""
    from config.loader import load_settings
    from config.problems import ConfigError

    try:
        return load_settings(config_path)
    except ConfigError as error:
        click.echo(error, err=True)
        sys.exit(exit_status)


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
