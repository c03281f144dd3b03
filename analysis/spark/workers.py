"""Sends Sluice's packages to Spark's Python workers, as a zip.

Workers find them before any others of their names, and need only the libraries installed (docs/decisions/0018).
"""

import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PACKAGES: Final = ("analysis", "config", "quotas")
_HOME: Final = Path(__file__).resolve().parents[2]
_NAME: Final = "sluice-workers.zip"
_equipped: set[str] = set()
"""Ids of applications whose workers have the packages."""


def equip(session: "SparkSession") -> None:
    """Send the packages to the workers of a session, including future ones."""
    context = session.sparkContext
    if context.applicationId not in _equipped:
        context.addPyFile(str(Path(_packed().name, _NAME)))
        _equipped.add(context.applicationId)


@cache
def _packed() -> "tempfile.TemporaryDirectory[str]":
    """Return a folder with the zip, which exists until the program ends: workers fetch it from there."""
    folder = tempfile.TemporaryDirectory(prefix="sluice-")
    with zipfile.ZipFile(Path(folder.name, _NAME), "w", zipfile.ZIP_DEFLATED) as archive:
        for package in _PACKAGES:
            for file in sorted((_HOME / package).rglob("*.py")):
                archive.write(file, file.relative_to(_HOME))
    return folder
