"""Options that several commands have."""

from collections.abc import Callable
from typing import Any, TypeVar

Command = TypeVar("Command", bound=Callable[..., Any])


def with_options(command: Command, *options: Callable[[Command], Command]) -> Command:
    """Give a command options, and show them in their order."""
    for option in reversed(options):
        command = option(command)
    return command
