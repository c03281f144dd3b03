"""The output directory of what-if: a table and a page, over those of an earlier run and over nothing else."""

from dataclasses import dataclass
from typing import Final

import pyarrow.fs as pafs
import pyarrow.parquet as pq

from analysis.errors import AnalysisError
from analysis.warehouse import located
from analysis.whatif.job import WhatIf
from analysis.whatif.page import OURS, render

_TABLES: Final = ("usage", "rejected", "documents", "checkpoints", "gold")
"""Folders of a warehouse."""


@dataclass(frozen=True, slots=True)
class Output:
    """A directory for figures and page."""

    files: pafs.FileSystem
    page: str
    table: str

    @classmethod
    def at(cls, out: str, warehouse: str) -> "Output":
        """Make a directory, by its path or URI. Raises AnalysisError where it is a part of the warehouse, or has
        files of these names that what-if has not made.
        """
        files, place = located(out)
        if any(f"{place}/".startswith(f"{located(warehouse)[1]}/{table}/") for table in _TABLES):
            raise AnalysisError(f"--out: {out} is in a table of the warehouse: name another directory")
        output = cls(files, f"{place}/whatif.html", f"{place}/whatif/part-0.parquet")
        try:
            files.create_dir(f"{place}/whatif")
            page, table = files.get_file_info([output.page, output.table])
            there = [each.path for each in (page, table) if each.type is not pafs.FileType.NotFound]
            if there and not output._is_ours(page):
                raise AnalysisError(f"--out: {there[0]} is there, and not made by what-if: name another directory")
        except OSError as error:
            raise AnalysisError(f"--out: {out} cannot be written: {error}") from None
        return output

    def _is_ours(self, page: pafs.FileInfo) -> bool:
        if page.type is not pafs.FileType.File:
            return False
        with self.files.open_input_stream(page.path) as stream:
            return OURS.encode() in stream.read()

    def write(self, found: WhatIf) -> str:
        """Write all, over earlier ones, and return where the page is."""
        try:
            pq.write_table(found.units, self.table, filesystem=self.files, compression="zstd")
            with self.files.open_output_stream(self.page) as stream:
                stream.write(render(found).encode())
        except OSError as error:
            raise AnalysisError(f"--out: {self.page} cannot be written: {error}") from None
        return self.page
