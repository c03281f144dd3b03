"""Where a report goes: beside the warehouse, or wherever somebody says, but not into its tables."""

import os
import posixpath
from typing import Final

from analysis.errors import AnalysisError

_TABLES: Final = ("usage", "documents", "rejected", "gold", "checkpoints")
"""Folders of a warehouse (docs/analysis-tables.md)."""


def chosen(out: str | None, warehouse: str) -> str:
    """Return where the report goes: ``out``, or beside the warehouse. Raises AnalysisError.

    Not where tables are: what lies there is taken for rows of them.
    """
    if out is None:
        if (found := beside(warehouse)) is None:
            raise AnalysisError(f"--out: say where the report goes: there is no place beside {warehouse}")
        return found
    place, root = _absolute(out), _absolute(warehouse)
    for table in _TABLES:
        if f"{place}/".startswith(f"{root}/{table}/"):
            raise AnalysisError(
                f"--out: {out} is in {table}/ of the warehouse, whose readers would take a report for a part of it: "
                "name another directory, or none (then it goes beside the warehouse)"
            )
    return out


def beside(warehouse: str) -> str | None:
    """Return where reports go if nobody says: beside a warehouse, with `-reports`; None beside a whole file system."""
    scheme, colon, path = warehouse.partition("://")
    if colon and scheme != "file":
        return f"{warehouse.rstrip('/')}-reports" if path.partition("/")[2].strip("/") else None
    root = _absolute(warehouse)
    if not root:
        return None
    plain = warehouse.rstrip("/")
    return f"{root if posixpath.basename(plain) in ('.', '..') else plain}-reports"


def _absolute(place: str) -> str:
    """Return a directory or URI as its file system has it: without ``..``, and links followed on a disk."""
    scheme, colon, path = place.partition("://")
    if colon and scheme != "file":
        return f"{scheme}://{posixpath.normpath(path)}"
    return os.path.realpath(path if colon else place.removeprefix("file:")).rstrip("/")
