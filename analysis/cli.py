"""``sluice analyze …``, and the same under spark-submit. A command is a module of ``analysis.commands``."""

import pkgutil
import sys
from importlib import import_module
from typing import Any, NoReturn

import click

import analysis.commands
from analysis.errors import AnalysisError, RunError, of_worker
from analysis.spark import interrupt


class _Commands(click.Group):
    """Knows commands by the names of their modules, and imports one when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's face
        return sorted(module.name for module in pkgutil.iter_modules(analysis.commands.__path__))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command = import_module(f"{analysis.commands.__name__}.{cmd_name}").command
        assert isinstance(command, click.Command)  # noqa: S101  a module of ours without its command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            _stopped()
        except Exception as error:
            if interrupt.is_cause(error):
                _stopped()
            if isinstance(error, AnalysisError):
                click.echo(f"error: {error}", err=True)
                sys.exit(error.exit_status)
            if (said := of_worker(error)) is None:
                raise
            click.echo(f"error: {said}", err=True)
            sys.exit(RunError.exit_status)


def _stopped() -> NoReturn:
    click.echo("stopped", err=True)
    sys.exit(interrupt.EXIT_STATUS)


@click.group(cls=_Commands)
def analyze() -> None:
    """What was used, and what the quotas should be, from usage records (docs/analysis.md)."""
