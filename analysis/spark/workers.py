"""What Spark's Python workers need of Sluice: its packages, as a zip that the session hands them.

So a worker finds them before any others of their names, and needs nothing installed but the libraries
(docs/decisions/0018).
"""

import shutil
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
_OF_STREAMS: Final = "streaming_job"
_equipped: set[str] = set()
"""Applications whose workers have the packages."""


def equip(session: "SparkSession") -> None:
    """Hand the packages to the workers of a session, those to come among them."""
    context = session.sparkContext
    if context.applicationId not in _equipped:
        packed = Path(_packed().name, _NAME)
        context.addPyFile(str(packed))
        _hand_to_planner(packed)
        _equipped.add(context.applicationId)


def _hand_to_planner(packed: Path) -> None:
    """Put the packages where the process that plans a stream looks for what was added: a folder that nobody makes.

    Spark's PythonStreamingDataSourceRunner tells it ``streaming_job`` below the driver's folder of files (4.0 to 4.2).
    """
    from pyspark import SparkFiles

    folder = Path(SparkFiles.getRootDirectory(), _OF_STREAMS)
    folder.mkdir(exist_ok=True)
    shutil.copyfile(packed, folder / _NAME)


@cache
def _packed() -> "tempfile.TemporaryDirectory[str]":
    """Return a folder with the zip, which is there until the program ends: workers fetch it from there."""
    folder = tempfile.TemporaryDirectory(prefix="sluice-")
    with zipfile.ZipFile(Path(folder.name, _NAME), "w", zipfile.ZIP_DEFLATED) as archive:
        for package in _PACKAGES:
            for file in sorted((_HOME / package).rglob("*.py")):
                archive.write(file, file.relative_to(_HOME))
    return folder
