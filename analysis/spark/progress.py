"""Lines that a command says on its way."""

import click


def to_stderr(line: str) -> None:
    """Say a line beside what a command found, which goes to stdout."""
    click.echo(line, err=True)
