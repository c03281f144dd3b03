"""What goes wrong for a reason that its reader can do something about."""

import re
from typing import ClassVar, Final


class AnalysisError(Exception):
    """One line: what was found, where, and what to do. The command line prints it and exits with ``exit_status``."""

    exit_status: ClassVar[int] = 2


class RunError(AnalysisError):
    """What was asked for can be done, and failed on the way."""

    exit_status: ClassVar[int] = 1


_RAISED: Final = re.compile(r"[\w.$]*(Error|Exception): .")
_OURS: Final = f"{AnalysisError.__module__}.{AnalysisError.__name__}: "


def of_worker(error: Exception) -> str | None:
    """Return what an AnalysisError said that a Python worker raised, and Spark told as part of a long story."""
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line.removeprefix(_OURS) for line in reversed(lines) if line.startswith(_OURS)), None)


def cause(error: Exception) -> str:
    """Return the line of a long story that says why: the last of ours, or of any exception."""
    lines = [line.strip() for line in str(error).splitlines()]
    raised = [line for line in lines if _RAISED.match(line)]
    return of_worker(error) or (raised or lines)[-1]
