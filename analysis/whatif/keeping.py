"""What what-if keeps: a table and a page, over those of an earlier run and over nothing else."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from analysis.errors import AnalysisError
from analysis.spark.folder import Folder
from analysis.table import results
from analysis.whatif.job import WhatIf
from analysis.whatif.page import OURS, render

TABLE: Final = "whatif"
PAGE: Final = "whatif.html"
_PARTS: Final = re.compile(r"part-[\w.-]+\.parquet|\.part-[\w.-]+\.parquet\.crc|_SUCCESS|\._SUCCESS\.crc")
"""Of a table, as it is written now and as Spark wrote it; on disks Hadoop has sums beside them."""
_ANOTHER: Final = "name another directory"


def refuse_a_file(out: Path) -> None:
    """Raise AnalysisError where a directory of this machine cannot be one because there is a file."""
    for place in (out / TABLE, out, *out.parents):
        if place.exists():
            if not place.is_dir():
                raise AnalysisError(f"--out: {place} is there and no directory: {_ANOTHER}")
            if place != out / TABLE:
                return


@dataclass(frozen=True, slots=True)
class Kept:
    """Where the figures and the page go."""

    folder: Folder
    place: str

    @classmethod
    def at(cls, spark: SparkSession, out: str) -> "Kept":
        """Take a directory, by its path or URI. Raises AnalysisError where it holds what an earlier run has not made:
        the table is replaced whole.
        """
        folder, place = Folder(spark, out), out.rstrip("/")
        made = folder.exists(PAGE)
        if made and OURS not in folder.read(PAGE):
            raise AnalysisError(f"--out: {place}/{PAGE} is there and no page of what-if: {_ANOTHER}")
        names = _names(folder)
        if strange := sorted(name for name in names if not _PARTS.fullmatch(name)):
            raise AnalysisError(f"--out: {place}/{TABLE} holds {strange[0]}, which what-if has not made: {_ANOTHER}")
        if names and not made:
            raise AnalysisError(
                f"--out: {place}/{TABLE} holds a table without {PAGE} beside it, so it may be another program's: "
                f"{_ANOTHER}, or remove it"
            )
        return cls(folder, place)

    def write(self, found: WhatIf) -> str:
        """Write all, over earlier ones, and return where the page is."""
        results.write(self.folder, TABLE, found.units)
        self.folder.write(PAGE, render(found))
        return f"{self.place}/{PAGE}"


def _names(folder: Folder) -> list[str]:
    """Return what is in the table's directory. On a disk all of it: Hadoop hides sums, and takes names for globs."""
    if not folder.is_on_disk:
        return [entry.path.rpartition("/")[2] for entry in folder.entries(f"{TABLE}/*")]
    there = folder.on_disk(TABLE)
    return [each.name if each.is_file() else f"{each.name}/" for each in there.iterdir()] if there.exists() else []
