"""``sluice quotas …`` as it is typed."""

import re
from pathlib import Path

from click.testing import CliRunner, Result

from proxy.cli import cli


def quotas(*arguments: object, stdin: str | None = None) -> Result:
    """Run a command of ``sluice quotas``."""
    return CliRunner().invoke(cli, ["quotas", *map(str, arguments)], input=stdin)


def _rule(who: str, what: str) -> str:
    return f"  - {{entity: {{{who}}}, {what}}}"


def linted(*rules: str, groups: str = "", caps: tuple[str, ...] = ()) -> list[str]:
    """Return what is said of rules (whom they are for | what they say), of which the first is on line 2."""
    text = "quotas:\n" if rules else "quotas: []\n"
    lines = [_rule(*rule.split(" | ")) for rule in rules]
    of_caps = ["caps:", *(_rule(*rule.split(" | ")) for rule in caps)] if caps else []
    Path("q.yaml").write_text(text + "\n".join([*lines, *of_caps, f"groups: {groups}" if groups else "", ""]))
    done = quotas("lint", "--file", "q.yaml")
    assert (done.exit_code, done.stderr) == (0, "")
    return [re.sub(r"^q\.yaml:?", "", line) for line in done.stdout.splitlines()][:-1]
