"""``sluice quotas …``. Each command is a module of ``proxy.manage.commands`` that defines ``command``.

A command is named after its module, without a trailing ``_`` that avoids a Python keyword (``import_``).
"""

import pkgutil
import sys
from importlib import import_module
from typing import Any, Final

import click

import proxy.manage.commands
from config.problems import ConfigError
from quotas.stores.base import StoreError

EXIT_FAILED: Final = 1
EXIT_CONFIG: Final = 2


class _Commands(click.Group):
    """A group that imports a command's module when the command is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's face
        return sorted(_modules())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  click's face
        module = _modules().get(cmd_name)
        if module is None:
            return None
        command = import_module(f"{proxy.manage.commands.__name__}.{module}").command
        assert isinstance(command, click.Command)  # noqa: S101  every module there defines one
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (ConfigError, StoreError) as error:
            click.echo(f"error: {error}", err=True)
            sys.exit(EXIT_CONFIG if isinstance(error, ConfigError) else EXIT_FAILED)


def _modules() -> dict[str, str]:
    """Return command name → module name."""
    modules = pkgutil.iter_modules(proxy.manage.commands.__path__)
    return {module.name.removesuffix("_"): module.name for module in modules}


@click.group(cls=_Commands)
def quotas() -> None:
    """Show and change quotas in any store (docs/managing-quotas.md)."""
