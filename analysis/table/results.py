"""Tables that were made of rows: kept as Parquet beside what is drawn of them, and gone on with from there.

Because each is used more than once, and nothing that is drawn can then differ from what is kept.
"""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from analysis.spark.folder import Folder

_FILE = "part-0.parquet"


@dataclass(frozen=True, slots=True)
class Results:
    """A directory, or URI, with a directory for each table."""

    spark: SparkSession
    place: str
    are_small: bool = False
    """Whether they fit into this process easily. Then Spark need not write them, list them, and read them again."""

    def keep(self, name: str, table: DataFrame) -> DataFrame:
        """Write a table over the one that is there, and return what was written."""
        if not self.are_small:
            path = f"{self.place}/{name}"
            table.write.mode("overwrite").parquet(path)
            return self.spark.read.schema(table.schema).parquet(path)
        found: pa.Table = table.toArrow()
        write(Folder(self.spark, self.place), name, found)
        return self.spark.createDataFrame(found, table.schema)


def write(folder: Folder, name: str, table: pa.Table) -> None:
    """Write a table into a folder, over the one that is there."""
    file = pa.BufferOutputStream()
    pq.write_table(table, file, compression="zstd")
    folder.remove(name)
    folder.write(f"{name}/{_FILE}", bytes(file.getvalue()))
