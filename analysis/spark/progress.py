"""Progress messages."""

import sys
from typing import Final

import click

_ERASE: Final = "\r\x1b[K"
"""To the begin of the line, and remove it (ECMA-48, EL)."""


def to_stderr(line: str) -> None:
    """Print a line to stderr, in place of the step that ``show`` has shown: stdout is for results."""
    click.echo(f"{_ERASE if sys.stderr.isatty() else ''}{line}", err=True)


def show(step: str) -> None:
    """Show the step under way on a terminal, in place of the one before; logs get only what is done."""
    if sys.stderr.isatty():
        click.echo(f"{_ERASE}{step}", nl=False, err=True)
