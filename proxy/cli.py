"""The command line. Commands import what they need when they run: ``sluice health`` runs every few seconds."""

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from proxy import __version__, version
from proxy.live import commands as live
from proxy.live.options import file_option

if TYPE_CHECKING:
    from config.document import Document
    from config.settings import Settings

HELP: Final = ["-h", "--help"]
EXIT_UNHEALTHY: Final = 1
EXIT_CONFIG: Final = 2  # also click's own, for a wrong command line


_CONFIG: Final = "The configuration file (sluice.yaml)."
_config_option = file_option("-c", "--config", "config_path", help_text=_CONFIG, required=True)
_optional_config_option = file_option("-c", "--config", "config_path", help_text=_CONFIG)


class Commands(click.Group):
    """A group that imports the commands of ``_ELSEWHERE`` when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *_ELSEWHERE])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _ELSEWHERE:
            return super().get_command(ctx, cmd_name)
        if cmd_name == "analyze" and find_spec("pyspark") is None:
            return _without_spark
        module, name = _ELSEWHERE[cmd_name]
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)  # noqa: S101  for mypy
        return command


_ELSEWHERE: Final = {
    "analyze": ("analysis.cli", "analyze"),
    "explain": ("proxy.manage.explaining", "explain"),
    "quotas": ("proxy.manage.cli", "quotas"),
}
"""Name of a command → its module, and its name there."""


@click.command(
    "analyze",
    short_help="Report usage, and recommend quotas, from usage records.",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def _without_spark(arguments: tuple[str, ...]) -> None:  # noqa: ARG001  click's interface
    click.echo("analysis needs Spark, which is not installed: pip install 'kafka-sluice[analysis]'", err=True)
    sys.exit(EXIT_CONFIG)


@click.group(
    "sluice",
    cls=Commands,
    context_settings={"help_option_names": HELP},
    epilog="First `sluice check -c sluice.yaml`, then `sluice run -c sluice.yaml`; "
    "`sluice doctor -c sluice.yaml` if a client cannot connect.",
)
@click.version_option(__version__, message=version())
def cli() -> None:
    """A throttling proxy that speaks Kafka's protocol."""


@cli.command(short_help="Run the proxy until it is told to stop.")
@_config_option
def run(config_path: Path) -> None:
    """Run the proxy until SIGTERM; SIGHUP reloads quotas and certificates."""
    settings, document = _loaded(config_path)
    from proxy import app
    from proxy.checks import configuration
    from proxy.runtime import logs
    from proxy.runtime.clock import wall_s

    findings = configuration.look(settings, document, wall_s())
    if unusable := configuration.unusable(findings):
        click.echo("\n".join(map(str, unusable)), err=True)
        sys.exit(EXIT_CONFIG)
    logs.configure(settings.log.level, settings.log.format)
    with logs.writer_thread():
        configuration.log_findings(findings)
        status = app.run(settings, config_path)
    sys.exit(status)


@cli.command(short_help="Print what is wrong with a configuration or a quota file.")
@_optional_config_option
@click.argument("quota_file", metavar="[QUOTAS]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--name",
    "names",
    metavar="NAME",
    multiple=True,
    help="Apply mapping rules to this certificate subject or Kerberos principal, instead of examples.",
)
@click.option("--quotas", "ask", is_flag=True, help="Also read the quotas from their stores, even over the network.")
@click.option("--brokers", "asks_brokers", is_flag=True, help="Also ask the brokers of bootstrap for their cluster.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check(
    config_path: Path | None,
    quota_file: Path | None,
    names: tuple[str, ...],
    *,
    ask: bool,
    asks_brokers: bool,
    as_json: bool,
) -> None:
    """Print every problem of a configuration and of the files it names: exit 0 if it can be used, else 2.

    QUOTAS is a quota file to check; with --config, it replaces the one that the configuration names.
    """
    if config_path is None and quota_file is None:
        raise click.UsageError("give a quota file, --config, or both")
    from proxy.checks import report
    from proxy.control.stores import load_quotas
    from proxy.runtime.clock import wall_s

    load = load_quotas if ask else None
    found = report.check(config_path, wall_s(), quota_file, load, names, asks_brokers=asks_brokers)
    if as_json:
        _print_json(found.as_data())
    else:
        click.echo("\n".join(found.lines(" with ".join(str(each) for each in (config_path, quota_file) if each))))
    sys.exit(EXIT_CONFIG if found.problems else 0)


@cli.command(short_help="Check whether a running proxy is healthy.")
@_optional_config_option
@click.option("--url", metavar="URL", help="Ask this admin port, as in http://127.0.0.1:9404, without a configuration.")
@file_option("--ca", help_text="Authorities to verify an https URL by (PEM).")
@click.option("--live", is_flag=True, help="Check whether it is running (/livez), not whether it is ready (/readyz).")
def health(config_path: Path | None, url: str | None, ca: Path | None, *, live: bool) -> None:
    """Check whether a running proxy is healthy: exit 0 if it is, else print why and exit 1."""
    from config.problems import InvalidValue
    from proxy.checks.health import AdminLogin, admin_url, ask, login_of

    if (config_path is None) == (url is None):
        raise click.UsageError("give either --config or --url")
    login = AdminLogin()
    if url is None and config_path is not None:
        of_file = _loaded(config_path, EXIT_UNHEALTHY)[0].admin
        url, login = admin_url(of_file), login_of(of_file)
    try:
        well, answer = ask(str(url), "/livez" if live else "/readyz", login.given(None, ca))
    except InvalidValue as error:
        raise click.UsageError(error.message) from None
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--url") from None
    click.echo(answer)
    sys.exit(0 if well else EXIT_UNHEALTHY)


@cli.command(short_help="Connect as a client would, and print what works.")
@_config_option
@click.option("--listener", metavar="NAME", help="The listener to connect to, if there are several.")
@file_option(
    "--command-config",
    help_text="Client properties, as for Kafka's own tools: security.protocol, sasl.jaas.config ...",
)
@click.option("--bootstrap", metavar="HOST:PORT", help="Connect to this address instead of the listener's.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def doctor(
    config_path: Path, listener: str | None, command_config: Path | None, bootstrap: str | None, *, as_json: bool
) -> None:
    """Connect as a client would, and print what works and what to do about the rest: exit 1 if anything fails."""
    from proxy.doctor.examine import examine

    try:
        found = examine(config_path, listener, command_config, bootstrap)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if as_json:
        _print_json(found.as_data())
    else:
        click.echo("\n".join(filter(None, [*map(str, found.all), found.summary()])))
    sys.exit(0 if found.first_failure is None else EXIT_UNHEALTHY)


@cli.command(short_help="Measure the cost of requests at a broker, for request_costs.scale.")
@_config_option
@file_option(
    "--command-config",
    help_text="Client properties, as for Kafka's own tools. Default: the cluster section of the configuration.",
)
@click.option("--broker", type=int, metavar="NODE_ID", help="The broker to measure. Default: the lowest node id.")
def calibrate(config_path: Path, command_config: Path | None, broker: int | None) -> None:
    """Measure the cost of requests at a broker, and print the value for request_costs.scale.

    Takes some ten seconds and the right to change quotas. Creates a topic and quotas of its own for that time. Brokers
    then record request times of all clients until they are restarted (docs/request-percentage.md).
    """
    settings, _ = _loaded(config_path)
    from proxy.calibrate.calibration import run as measure

    sys.exit(measure(settings, command_config, broker))


@cli.command(short_help="Show a first throttle, without a Kafka cluster and without Java.")
@click.option(
    "--seconds", type=click.IntRange(3, 3600), default=15, show_default=True, help="How long the clients are shown."
)
@click.option("--keep", is_flag=True, help="Go on after that, until Ctrl-C.")
def demo(seconds: int, *, keep: bool) -> None:
    """Show a first throttle, without a Kafka cluster and without Java: exit 0 if there was one, else 1.

    Runs a stand-in for a broker that drops what producers send, Sluice in front of it, and two producers, one of them
    over its quota. Uses free ports of 127.0.0.1, and leaves nothing behind.
    """
    from proxy.demo.command import run as show

    sys.exit(show(seconds, keep=keep))


for _command in (live.throttled, live.clients, live.top):
    cli.add_command(_command)


def _loaded(config_path: Path, exit_status: int = EXIT_CONFIG) -> "tuple[Settings, Document]":
    """Load the configuration, or print all its problems and exit."""
    from config.loader import load_with_document
    from config.problems import ConfigError

    try:
        return load_with_document(config_path)
    except ConfigError as error:
        click.echo(error, err=True)
        sys.exit(exit_status)


def _print_json(data: dict[str, object]) -> None:
    import json

    click.echo(json.dumps(data, indent=2))
