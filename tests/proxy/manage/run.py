"""``sluice quotas …`` as it is typed."""

from click.testing import CliRunner, Result

from proxy.cli import cli


def quotas(*arguments: object, stdin: str | None = None) -> Result:
    """Run a command of ``sluice quotas``."""
    return CliRunner().invoke(cli, ["quotas", *map(str, arguments)], input=stdin)
