"""Writes the figures and the page of what-if to ``--out``, over those of an earlier run."""

from dataclasses import dataclass

import pyarrow.fs as pafs
import pyarrow.parquet as pq

from analysis.errors import AnalysisError
from analysis.warehouse import located
from analysis.whatif.job import WhatIf
from analysis.whatif.page import render


@dataclass(frozen=True, slots=True)
class Output:
    """The files in ``--out``."""

    files: pafs.FileSystem
    page: str
    table: str

    @classmethod
    def at(cls, out: str) -> "Output":
        """Create the directory, by its path or URI. Raises AnalysisError."""
        files, place = located(out)
        try:
            files.create_dir(f"{place}/whatif")
        except OSError as error:
            raise AnalysisError(f"--out: {out} cannot be written: {error}") from None
        return cls(files, f"{place}/whatif.html", f"{place}/whatif/part-0.parquet")

    def write(self, found: WhatIf) -> str:
        """Write the figures and the page; return the path of the page."""
        try:
            pq.write_table(found.units, self.table, filesystem=self.files, compression="zstd")
            with self.files.open_output_stream(self.page) as stream:
                stream.write(render(found).encode())
        except OSError as error:
            raise AnalysisError(f"--out: {self.page} cannot be written: {error}") from None
        return self.page
