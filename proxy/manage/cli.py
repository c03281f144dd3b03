"""``sluice quotas …``. A command is a module of ``proxy.manage.commands`` with a ``command``.

Its name is that of the module, without the ``_`` behind one that Python keeps for itself (``import_``).
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
    """Knows commands by the names of their modules, and imports one when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's face
        return sorted(_modules())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  click's face
        module = _modules().get(cmd_name)
        if module is None:
            return None
        command = import_module(f"{proxy.manage.commands.__name__}.{module}").command
        assert isinstance(command, click.Command)  # noqa: S101  a module of ours without its command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (ConfigError, StoreError) as error:
            click.echo(f"error: {error}", err=True)
            sys.exit(EXIT_CONFIG if isinstance(error, ConfigError) else EXIT_FAILED)


def _modules() -> dict[str, str]:
    """Return the modules of all commands, by the names of these."""
    modules = pkgutil.iter_modules(proxy.manage.commands.__path__)
    return {module.name.removesuffix("_"): module.name for module in modules}


@click.group(cls=_Commands)
def quotas() -> None:
    """See and change quotas, wherever they are kept (docs/managing-quotas.md)."""
