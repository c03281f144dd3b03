"""``sluice analyze …``, and the same under spark-submit. A command is a module of ``analysis.commands``."""

import pkgutil
import sys
import traceback
from importlib import import_module
from io import StringIO
from typing import Any, Final, NoReturn

import click

import analysis.commands
from analysis.errors import AnalysisError, RunError, of_worker
from analysis.spark import interrupt
from config.problems import ConfigError

_ANSWER_BY_STATUS: Final = ("recommend", "whatif")
"""Commands whose exit status 1 is an answer: any error of theirs exits with 2."""


class _Commands(click.Group):
    """Imports a command's module when the command is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's interface
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
        except (click.ClickException, click.exceptions.Exit):
            raise
        except Exception as error:
            if interrupt.is_cause(error):
                _stopped()
            answers = ctx.invoked_subcommand in _ANSWER_BY_STATUS
            is_ours = isinstance(error, (AnalysisError, ConfigError))
            said = str(error) if is_ours else of_worker(error)
            if isinstance(error, AnalysisError):
                said = " ".join(str(error).splitlines())  # names may have several lines
            if said is not None:
                click.echo(f"error: {said}", err=True)
                failed = isinstance(error, RunError) or not is_ours
                sys.exit(1 if failed and not answers else 2)
            if not answers:
                raise
            if isinstance(error, BrokenPipeError):
                sys.stdout = StringIO()  # Python flushes stdout when it ends, which would fail again
            else:
                traceback.print_exc()
            sys.exit(2)


def _stopped() -> NoReturn:
    click.echo("stopped", err=True)
    sys.exit(interrupt.exit_status())


@click.group(cls=_Commands, short_help="Report usage, and recommend quotas, from usage records.")
def analyze() -> None:
    """Report usage, try out quotas and recommend them, from usage records (docs/analysis.md)."""
