"""Progress messages."""

import click


def to_stderr(line: str) -> None:
    """Print a line to stderr: stdout is for results."""
    click.echo(line, err=True)
