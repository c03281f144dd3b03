"""Helpers for options that several commands share."""

from collections.abc import Callable
from typing import Any, TypeVar

Command = TypeVar("Command", bound=Callable[..., Any])


def with_options(command: Command, *options: Callable[[Command], Command]) -> Command:
    """Add options to a command, shown in this order."""
    for option in reversed(options):
        command = option(command)
    return command
