"""Tables that were made of rows: kept as Parquet beside what is drawn of them, and gone on with from there.

Because each is used more than once, and nothing that is drawn can then differ from what is kept.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from analysis.spark.folder import Folder
from analysis.spark.session import light

FEW_BYTES: Final = 1_000_000
FEW_VALUES: Final = 500_000
"""Rows times columns. Of more, Spark sums in less time with Java made for it than without."""
_FILE: Final = "part-0.parquet"


@dataclass(frozen=True, slots=True)
class Results:
    """A directory, or URI, with a directory for each table."""

    spark: SparkSession
    place: str
    are_small: bool = False
    """Whether they fit into this process easily. Then Spark need not write them, list them, and read them again."""

    def keep(self, name: str, table: DataFrame) -> DataFrame:
        """Write a table over the one that is there, and return what was written; one with few rows is in the driver."""
        folder = Folder(self.spark, self.place)
        if self.are_small:
            found: pa.Table = table.toArrow()
            write(folder, name, found)
            return self.spark.createDataFrame(found, table.schema)
        path = f"{self.place}/{name}"
        table.write.mode("overwrite").parquet(path)
        few = _few(folder, name)
        if few is None:
            return self.spark.read.schema(table.schema).parquet(path)
        return light(self.spark).createDataFrame(few, table.schema)


def _few(folder: Folder, name: str) -> pa.Table | None:
    """Return a table that Spark has written; None where it is not small."""
    if folder.size_bytes(name) > FEW_BYTES:
        return None
    with tempfile.TemporaryDirectory() as here:
        files = []
        for number, entry in enumerate(folder.entries(f"{name}/*.parquet")):
            files.append(Path(here, str(number)))
            folder.fetch(entry.path, files[-1])
        values = sum(each.num_rows * each.num_columns for each in map(pq.read_metadata, files))
        return pa.concat_tables(map(pq.read_table, files)) if files and values <= FEW_VALUES else None


def write(folder: Folder, name: str, table: pa.Table) -> None:
    """Write a table into a folder, over the one that is there."""
    file = pa.BufferOutputStream()
    pq.write_table(table, file, compression="zstd")
    folder.remove(name)
    folder.write(f"{name}/{_FILE}", bytes(file.getvalue()))
