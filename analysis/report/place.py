"""Where a report may go: anywhere but into the tables of the warehouse."""

import os
import posixpath
from typing import Final

from analysis.errors import AnalysisError

_TABLES: Final = ("usage", "rejected", "checkpoints")
"""What a warehouse consists of (docs/analysis.md)."""


def check(out: str, warehouse: str) -> None:
    """Refuse to write where tables are: what lies there is taken for rows of them. Raises AnalysisError."""
    place, root = _absolute(out), _absolute(warehouse)
    for table in _TABLES:
        if f"{place}/".startswith(f"{root}/{table}/"):
            raise AnalysisError(
                f"--out: {out} is in {table}/ of the warehouse, whose readers would take a report for a part of it: "
                "name another directory, or none (then it goes beside the tables)"
            )


def _absolute(place: str) -> str:
    """Return a directory or URI as its file system has it: without ``..``, and links followed on a disk."""
    scheme, colon, path = place.partition("://")
    if colon and scheme != "file":
        return f"{scheme}://{posixpath.normpath(path)}"
    return os.path.realpath(path if colon else place.removeprefix("file:")).rstrip("/")
