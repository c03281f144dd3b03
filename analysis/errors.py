"""What goes wrong for a reason that its reader can do something about."""

from typing import ClassVar


class AnalysisError(Exception):
    """One line: what was found, where, and what to do. The command line prints it and exits with ``exit_status``."""

    exit_status: ClassVar[int] = 2


class RunError(AnalysisError):
    """What was asked for can be done, and failed on the way."""

    exit_status: ClassVar[int] = 1
