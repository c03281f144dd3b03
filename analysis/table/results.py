"""Tables that were made of rows: kept as Parquet beside what is drawn of them."""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

from analysis.spark.folder import Folder
from analysis.table.parts import Parts

_FILE: Final = "part-{}.parquet"


@dataclass(frozen=True, slots=True)
class Results:
    """A directory, or URI, with a directory for each table."""

    spark: SparkSession
    place: str

    def keep(self, name: str, table: Parts) -> Parts:
        """Write a table over the one that is there, and return it."""
        write(Folder(self.spark, self.place), name, table)
        return table


def write(folder: Folder, name: str, table: Parts | pa.Table) -> None:
    """Write a table into a folder, over the one that is there."""
    folder.remove(name)
    for number, content in enumerate((Parts.of(table) if isinstance(table, pa.Table) else table).contents()):
        folder.write(f"{name}/{_FILE.format(number)}", content)
