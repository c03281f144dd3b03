"""``sluice quotas lint``: show quotas that are probably mistakes."""

import json
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from config.problems import InvalidValue
from proxy.checks.health import AdminLogin
from proxy.live.options import admin_options
from proxy.manage.linting import NAMES, LintFinding, lint
from proxy.manage.target import target_options
from proxy.manage.target_store import failing_with, load_target, settings_of
from proxy.manage.unseen import NoAnswerError, ask

EXIT_FOUND: Final = 1
EXIT_FAILED: Final = 2
_MOST_SHOWN: Final = 20
"""Findings shown of each kind, on a terminal."""


@click.command(short_help="Show quotas that are probably mistakes.")
@target_options
@click.option("--strict", is_flag=True, help=f"Exit {EXIT_FOUND} if anything is found.")
@click.option(
    "--ignore",
    metavar="NAME",
    multiple=True,
    type=click.Choice([*NAMES]),
    help="Leave out findings of this name; may be given several times.",
)
@partial(
    admin_options,
    said="Also ask this admin port, as in http://127.0.0.1:9404, which users with quotas no client has ever been.",
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    ignore: tuple[str, ...],
    output: str,
    admin: str | None,
    token_file: Path | None,
    ca: Path | None,
    *,
    strict: bool,
    **target: Any,
) -> None:
    """Print quotas that are probably mistakes: rules without clients, limits below one batch, surprising precedence.

    Each finding has a name (docs/managing-quotas.md lists them), a place and a fix.

    \b
    sluice quotas lint -c sluice.yaml
    sluice quotas lint --file quotas.yaml --strict --ignore below-one-batch

    Exit status: 0, with --strict 1 if anything is found; 2 if the quotas cannot be read.
    """  # noqa: D301  \b is click's
    with failing_with(EXIT_FAILED):
        loaded, settings = load_target(**target), settings_of(target)
    try:
        unseen = ask(admin, AdminLogin().given(token_file, ca)) if admin is not None else []
    except (NoAnswerError, InvalidValue) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(EXIT_FAILED)
    found = [finding for finding in lint(loaded, settings, unseen) if finding.name not in ignore]
    if output == "json":
        click.echo(json.dumps({"findings": [each.as_data() for each in found]}, indent=2, ensure_ascii=False))
    else:
        click.echo("\n".join(_lines(found, loaded.source, len(loaded.policy.limits))))
    sys.exit(EXIT_FOUND if strict and found else 0)


def _lines(found: list[LintFinding], source: str, rules: int) -> list[str]:
    said = []
    shown: Counter[str] = Counter()
    for finding in found:
        shown[finding.name] += 1
        if shown[finding.name] <= _MOST_SHOWN:
            said.append(str(finding))
    said += [f"and {number - _MOST_SHOWN} more of {name}" for name, number in shown.items() if number > _MOST_SHOWN]
    findings = f"{len(found)} finding{'' if len(found) == 1 else 's'}" if found else "nothing found"
    return [*said, f"{source}: {findings} ({rules} rule{'' if rules == 1 else 's'})"]
