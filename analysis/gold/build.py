"""Makes gold for hours with new batches."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program
from pyspark.sql.pandas.types import to_arrow_schema

from analysis.charges import charges, present_in
from analysis.gold import inventory
from analysis.gold.inventory import Hours, Inventory
from analysis.gold.tables import CLOCKS, TABLES, Table
from analysis.schema import DOCUMENTS, OPTIONAL, ROWS
from analysis.spark.folder import Folder

_FEW_BYTES: Final = 1 << 20
_NO_CODEGEN: Final = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""For few rows: compiling a query takes longer than running it without."""


def make(spark: SparkSession, warehouse: str, tell: Callable[[str], None] = lambda _: None) -> int:
    """Make the tables of all hours whose batches have changed; return the number of hours. Needs the lock."""
    dates = reversed(Folder(spark, warehouse).names("usage/date=*"))  # the hour after midnight looks at the date before
    return sum(map(_Builder(spark, warehouse, tell).date, dates))


class _Builder:
    """Builds the gold of a warehouse."""

    def __init__(self, spark: SparkSession, warehouse: str, tell: Callable[[str], None]) -> None:
        self._spark = spark
        self._root = warehouse.rstrip("/")
        self._folder = Folder(spark, warehouse)
        self._tell = tell
        self._newest = max(self._folder.names("usage/date=*"), default="")

    def date(self, name: str) -> int:
        """Make the due hours of ``date=YYYY-MM-DD``; return their number."""
        begun = time.monotonic()  # noqa: TID251  how long it took
        stored, known = self._stored(name), inventory.read(self._folder, name)
        due = sorted(self._due(name, stored, known.hours))
        if due:
            inventory.write(self._folder, name, known._replace(day=None))
            places = self._places(name, due)
            few = self._few(places)
            with self._settings(few):
                self._hours(name, due, places, few)
            known = Inventory({**known.hours, **{hour: stored[hour] for hour in due}})
            inventory.write(self._folder, name, known)
        if name < self._newest and known.day != sorted(stored):
            with self._settings(self._few([f"gold/{table.name}_hour/{name}" for table in TABLES])):
                self._day(name)
            inventory.write(self._folder, name, known._replace(day=sorted(stored)))
        if due:
            took_s = time.monotonic() - begun  # noqa: TID251  as above
            self._tell(f"gold of {name.removeprefix('date=')}: hours {', '.join(due)} in {took_s:.1f} s")
        return len(due)

    def _due(self, name: str, stored: Hours, known: Hours) -> set[str]:
        """Return hours with changed batches, and those after them: their windows begin in the hour before."""
        changed = {hour for hour in stored if stored[hour] != known.get(hour)}
        after = {f"{int(hour) + 1:02}" for hour in changed} & stored.keys()
        before = _shifted(name, -1)
        if "00" in stored and self._stored(before).get("23") != inventory.read(self._folder, before).hours.get("23"):
            after.add("00")
        return changed | after

    def _stored(self, name: str) -> Hours:
        found: Hours = {}
        for entry in self._folder.entries(f"usage/{name}/hour=*/batch=*"):
            _, _, hour, batch = entry.path.split("/")
            found.setdefault(f"{int(hour.removeprefix('hour=')):02}", []).append(batch.removeprefix("batch="))
        return {hour: sorted(batches) for hour, batches in found.items()}

    @contextmanager
    def _settings(self, few: bool) -> Iterator[None]:
        """Run queries of few rows without code generation; ingestion has it."""
        before = {key: str(self._spark.conf.get(key)) for key in _NO_CODEGEN}
        for key, value in _NO_CODEGEN.items() if few else ():
            self._spark.conf.set(key, value)
        try:
            yield
        finally:
            for key, value in before.items():
                self._spark.conf.set(key, value)

    def _few(self, places: Iterable[str]) -> bool:
        return sum(map(self._folder.size_bytes, places)) <= _FEW_BYTES

    def _places(self, name: str, due: list[str]) -> list[str]:
        """Return the folders of rows of hours and of those before them, whose windows end in them."""
        wanted = {(name, hour) for hour in due} | {_before(name, hour) for hour in due}
        places = [f"usage/{date_}/hour={hour}" for date_, hour in sorted(wanted)]
        return [place for place in places if self._folder.exists(place)]

    def _hours(self, name: str, due: list[str], places: list[str], few: bool) -> None:
        condition = (
            f"date = DATE '{name.removeprefix('date=')}' AND hour IN ({', '.join(str(int(hour)) for hour in due)})"
        )
        usage, there = self._usage(places)
        # Planning a query of few rows costs more than running it: what all tables are made of is planned once.
        (usage.localCheckpoint() if few else usage).createOrReplaceTempView("usage")
        charged = charges(self._spark, "usage", present_in(there))
        (charged.localCheckpoint() if few else charged).createOrReplaceTempView("charges")
        self._documents(name, due).createOrReplaceTempView("documents")
        for table in TABLES:
            self._write(table, self._spark.sql(table.hours.format(due=condition)), name, due)
            if table.name == "client":
                self._spark.sql(CLOCKS).createOrReplaceTempView("clocks")

    def _usage(self, places: list[str]) -> tuple[DataFrame, list[str]]:
        """Return the rows of folders, and the columns that any of their files has.

        Columns that a file lacks have their defaults.
        """
        paths = [f"{self._root}/{place}" for place in places]
        read = self._spark.read.option("basePath", f"{self._root}/usage")
        there = read.option("mergeSchema", "true").parquet(*paths).columns
        rows = read.schema(ROWS).parquet(*paths)
        missing = {
            each.name: F.coalesce(F.col(each.name), value) if each.name in there else value
            for each in OPTIONAL
            if each.missing is not None
            for value in (F.lit(each.missing).cast(ROWS[each.name].dataType),)
        }
        return rows.withColumns(missing), there

    def _documents(self, name: str, due: list[str]) -> DataFrame:
        paths = [place for hour in due if self._folder.exists(place := f"documents/{name}/hour={hour}")]
        read = self._spark.read.schema(DOCUMENTS)
        if not paths:
            return self._spark.createDataFrame([], DOCUMENTS)
        return read.option("basePath", f"{self._root}/documents").parquet(*(f"{self._root}/{path}" for path in paths))

    def _write(self, table: Table, found: DataFrame, name: str, due: list[str]) -> None:
        place = f"gold/{table.name}_hour/{name}"
        root = f"{self._root}/gold/{table.name}_hour"
        found = found.withColumn("hour", F.lpad(F.col("hour").cast("string"), 2, "0"))
        found.write.partitionBy("date", "hour").mode("overwrite").option("partitionOverwriteMode", "dynamic").option(
            "compression", "zstd"
        ).parquet(root)
        for hour in due:
            if not self._folder.exists(f"{place}/hour={hour}"):
                self._write_nothing(found, f"{place}/hour={hour}")
        if table.is_kept:
            kept = self._spark.read.schema(found.withColumn("hour", F.lit(0)).schema).option("basePath", root)
            kept.parquet(*(f"{self._root}/{place}/hour={hour}" for hour in due)).createOrReplaceTempView(table.name)

    def _write_nothing(self, table: DataFrame, place: str) -> None:
        """Write a file without rows: readers do not know the columns."""
        with NamedTemporaryFile() as file:
            pq.write_table(to_arrow_schema(table.drop("date", "hour").schema).empty_table(), file.name)
            self._folder.put(Path(file.name), f"{place}/nothing.parquet")

    def _day(self, name: str) -> None:
        for table in TABLES:
            root = f"{self._root}/gold/{table.name}_hour"
            self._spark.read.option("basePath", root).parquet(f"{root}/{name}").createOrReplaceTempView("hours")
            found = self._spark.sql(table.day or "SELECT * EXCEPT (date) FROM hours")
            found.coalesce(1).write.mode("overwrite").option("compression", "zstd").parquet(
                f"{self._root}/gold/{table.name}_day/{name}"
            )


def _shifted(name: str, days: int) -> str:
    return f"date={date.fromisoformat(name.removeprefix('date=')) + timedelta(days=days)}"


def _before(name: str, hour: str) -> tuple[str, str]:
    return (_shifted(name, -1), "23") if hour == "00" else (name, f"{int(hour) - 1:02}")
