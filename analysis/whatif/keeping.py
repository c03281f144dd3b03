"""The output directory of what-if: a table and a page, over those of an earlier run and over nothing else."""

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

import pyarrow.fs as pafs
import pyarrow.parquet as pq

from analysis.errors import AnalysisError
from analysis.warehouse import located
from analysis.whatif.job import WhatIf
from analysis.whatif.page import OURS, render

TABLE: Final = "whatif"
PAGE: Final = "whatif.html"
_PART: Final = "part-0.parquet"
_TABLES: Final = ("usage", "rejected", "documents", "checkpoints", "gold")
"""Folders of a warehouse."""
_ANOTHER: Final = "name another directory"


@dataclass(frozen=True, slots=True)
class Kept:
    """Where the figures and the page go."""

    files: pafs.FileSystem
    place: str

    @classmethod
    def at(cls, out: str, warehouse: str) -> "Kept":
        """Take a directory, by its path or URI. Raises AnalysisError where it holds what an earlier run has not made,
        or is a part of the warehouse.
        """
        files, place = located(out)
        if any(f"{place}/".startswith(f"{located(warehouse)[1]}/{table}/") for table in _TABLES):
            raise AnalysisError(f"--out: {out} is in a table of the warehouse: {_ANOTHER}")
        try:
            return cls._checked(files, place)
        except OSError as error:
            raise AnalysisError(f"--out: {out} cannot be read: {error}") from None

    @classmethod
    def _checked(cls, files: pafs.FileSystem, place: str) -> "Kept":
        above = [str(each) for each in PurePosixPath(place).parents] if isinstance(files, pafs.LocalFileSystem) else []
        page, table, *folders = files.get_file_info([f"{place}/{PAGE}", f"{place}/{TABLE}", place, *above])
        for each in (table, *folders):
            if each.type is pafs.FileType.File:
                raise AnalysisError(f"--out: {each.path} is there and no directory: {_ANOTHER}")
        if page.type is not pafs.FileType.NotFound:
            with files.open_input_stream(page.path) as stream:
                if OURS.encode() not in stream.read():
                    raise AnalysisError(f"--out: {page.path} is there and no page of what-if: {_ANOTHER}")
        if table.type is not pafs.FileType.NotFound:
            there = {each.base_name for each in files.get_file_info(pafs.FileSelector(table.path))}
            if strange := sorted(there - {_PART}):
                raise AnalysisError(f"--out: {table.path} holds {strange[0]}, which what-if has not made: {_ANOTHER}")
            if there and page.type is pafs.FileType.NotFound:
                raise AnalysisError(f"--out: {table.path} holds a table without {PAGE} beside it: {_ANOTHER}")
        return cls(files, place)

    def write(self, found: WhatIf) -> str:
        """Write all, over earlier ones, and return where the page is."""
        try:
            self.files.create_dir(f"{self.place}/{TABLE}")
            pq.write_table(found.units, f"{self.place}/{TABLE}/{_PART}", filesystem=self.files, compression="zstd")
            with self.files.open_output_stream(f"{self.place}/{PAGE}") as stream:
                stream.write(render(found).encode())
        except OSError as error:
            raise AnalysisError(f"--out: {self.place} cannot be written: {error}") from None
        return f"{self.place}/{PAGE}"
