"""``sluice quotas …``: its commands, each with its logic in the module beside it."""

import click

from proxy.manage.applying import apply, diff
from proxy.manage.changing import alter, delete
from proxy.manage.describing import describe
from proxy.manage.explaining import explain
from proxy.manage.importing import import_
from proxy.manage.linting import lint
from proxy.manage.quota_file import export


@click.group(short_help="Show and change quotas in any store.")
def quotas() -> None:
    """Show and change quotas in any store (docs/managing-quotas.md)."""


for _command in (alter, apply, delete, describe, diff, explain, export, import_, lint):
    quotas.add_command(_command)
