"""The directory of reports: ``--out``, or one beside the warehouse, but not among its tables."""

import os
import posixpath
from typing import Final

from analysis.errors import AnalysisError

_TABLES: Final = ("usage", "documents", "rejected", "gold", "checkpoints")
"""Folders of a warehouse (docs/analysis-tables.md)."""


def chosen(out: str | None, warehouse: str) -> str:
    """Return ``out``, or the directory beside the warehouse. Raises AnalysisError for one in a table.

    Readers of a table would take files of a report in its folder for rows.
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
    """Return the default: the warehouse's path with ``-reports``; None if the warehouse is a whole file system."""
    scheme, colon, path = warehouse.partition("://")
    if colon and scheme != "file":
        return f"{warehouse.rstrip('/')}-reports" if path.partition("/")[2].strip("/") else None
    root = _absolute(warehouse)
    if not root:
        return None
    plain = warehouse.rstrip("/")
    return f"{root if posixpath.basename(plain) in ('.', '..') else plain}-reports"


def _absolute(place: str) -> str:
    """Return a directory or URI without ``..``, and without links on a disk."""
    scheme, colon, path = place.partition("://")
    if colon and scheme != "file":
        return f"{scheme}://{posixpath.normpath(path)}"
    return os.path.realpath(path if colon else place.removeprefix("file:")).rstrip("/")
