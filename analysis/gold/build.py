"""Makes gold for hours with new batches."""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from analysis.charges import charges, present_in
from analysis.gold import inventory
from analysis.gold.tables import CLOCKS, TABLES, Table
from analysis.schema import DOCUMENTS, OPTIONAL, ROWS
from analysis.spark.folder import Folder
from analysis.spark.progress import show, to_stderr
from analysis.spark.writer import Writer
from analysis.warehouse import Inventory, Version

_FEW_BYTES: Final = 1 << 20
_NO_CODEGEN: Final = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""For few rows: compiling a query takes longer than running it without."""


def make(spark: SparkSession, warehouse: str) -> int:
    """Make the tables of all hours whose batches have changed; return the number of hours."""
    if not Folder(spark, warehouse).names("usage/date=*"):
        return 0
    with Writer(spark, warehouse, "gold") as writer:
        # The newest first: the hour after midnight looks at the date before.
        dates = writer.folder.names("usage/date=*")[::-1]
        return sum(map(_Builder(spark, warehouse.rstrip("/"), writer, dates[0]).date, dates))


@dataclass(frozen=True, slots=True)
class _Builder:
    """Builds the gold of a warehouse."""

    spark: SparkSession
    root: str
    writer: Writer
    newest: str
    """The newest date."""
    made: str = field(default_factory=lambda: uuid4().hex[:12])
    """The name of new versions."""

    @property
    def folder(self) -> Folder:
        return self.writer.folder

    def date(self, name: str) -> int:
        """Make the due hours of ``date=YYYY-MM-DD``; return their number."""
        begun_s = time.monotonic()  # noqa: TID251  how long it took
        stored, known = self._stored(name), inventory.read(self.folder, name)
        due = sorted(self._due(name, stored, known.hours))
        hours = {**known.hours, **{hour: Version(self.made, stored[hour]) for hour in due}}
        day = known.day if known.day and not due and known.day.sources == sorted(hours) else None
        if due:
            places = self._places(name, due)
            few = self._few(places)
            with self._settings(few):
                self._hours(name, due, places, few)
        if hours and name < self.newest and day is None:
            with self._settings(self._few([f"gold/{table.name}_hour/{name}" for table in TABLES])):
                self._day(name, hours)
            day = Version(self.made, sorted(hours))
        new = Inventory(hours, day)
        if new != known:
            text = inventory.text(name, new)
            self.writer.publish(writes={inventory.place(name): text}, removes=self._unlisted(name, known, new))
        if due:
            took_s = time.monotonic() - begun_s  # noqa: TID251  as above
            to_stderr(f"gold of {name.removeprefix('date=')}: hours {', '.join(due)} in {took_s:.1f} s")
        return len(due)

    def _unlisted(self, name: str, *lists: Inventory) -> list[str]:
        """Return all of a date that is not listed: what was replaced, what killed runs left, other forms of gold."""
        listed = {
            f"{place}made={version.made}"
            for each in lists
            for place, version in [*((f"hour={hour}/", found) for hour, found in each.hours.items()), ("", each.day)]
            if version is not None
        }
        found = self.folder.entries(f"gold/*_hour/{name}/hour=*/*") + self.folder.entries(f"gold/*_day/{name}/*")
        return [entry.path for entry in found if entry.path.partition(f"/{name}/")[2] not in listed]

    def _due(self, name: str, stored: Mapping[str, list[str]], known: Mapping[str, Version]) -> set[str]:
        """Return hours with changed batches, and those after them: their windows begin in the hour before."""
        changed = {hour for hour in stored if hour not in known or stored[hour] != known[hour].sources}
        after = {f"{int(hour) + 1:02}" for hour in changed} & stored.keys()
        before = _shifted(name, -1)
        last = self._stored(before).get("23") if "00" in stored else None
        version = inventory.read(self.folder, before).hours.get("23") if last else None
        return changed | after | ({"00"} if last and (version is None or version.sources != last) else set())

    def _stored(self, name: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for entry in self.folder.entries(f"usage/{name}/hour=*/batch=*"):
            _, _, hour, batch = entry.path.split("/")
            found.setdefault(f"{int(hour.removeprefix('hour=')):02}", []).append(batch.removeprefix("batch="))
        return {hour: sorted(batches) for hour, batches in found.items()}

    @contextmanager
    def _settings(self, few: bool) -> Iterator[None]:
        """Run queries of few rows without code generation; ingestion has it."""
        before = {key: str(self.spark.conf.get(key)) for key in _NO_CODEGEN}
        for key, value in _NO_CODEGEN.items() if few else ():
            self.spark.conf.set(key, value)
        try:
            yield
        finally:
            for key, value in before.items():
                self.spark.conf.set(key, value)

    def _few(self, places: Iterable[str]) -> bool:
        """Whether to plan for few rows; never on a cluster, where a lost executor takes its checkpoints with it."""
        is_local = str(self.spark.sparkContext.master).startswith("local")
        return is_local and sum(map(self.folder.size_bytes, places)) <= _FEW_BYTES

    def _places(self, name: str, due: list[str]) -> list[str]:
        """Return the folders of rows of hours and of those before them, whose windows end in them."""
        wanted = {(name, hour) for hour in due} | {_before(name, hour) for hour in due}
        places = [f"usage/{date_}/hour={hour}" for date_, hour in sorted(wanted)]
        return [place for place in places if self.folder.exists(place)]

    def _hours(self, name: str, due: list[str], places: list[str], few: bool) -> None:
        condition = (
            f"date = DATE '{name.removeprefix('date=')}' AND hour IN ({', '.join(str(int(hour)) for hour in due)})"
        )
        usage, there = self._usage(places)
        # Planning a query of few rows costs more than running it: what all tables are made of is planned once.
        (usage.localCheckpoint() if few else usage).createOrReplaceTempView("usage")
        charged = charges(self.spark, "usage", present_in(there))
        (charged.localCheckpoint() if few else charged).createOrReplaceTempView("charges")
        self._documents(name, due).createOrReplaceTempView("documents")
        for number, table in enumerate(TABLES, 1):
            which = due[0] if len(due) == 1 else f"{due[0]} to {due[-1]}"
            show(f"gold of {name.removeprefix('date=')}, {which}: {table.name} ({number} of {len(TABLES)})")
            self._write(table, self.spark.sql(table.hours.format(due=condition)), name, due)
            if table.name == "client":
                self.spark.sql(CLOCKS).createOrReplaceTempView("clocks")

    def _usage(self, places: list[str]) -> tuple[DataFrame, list[str]]:
        """Return the rows of folders, and the columns that any of their files has.

        Columns that a file lacks have their defaults.
        """
        paths = [f"{self.root}/{place}" for place in places]
        read = self.spark.read.option("basePath", f"{self.root}/usage")
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
        paths = [place for hour in due if self.folder.exists(place := f"documents/{name}/hour={hour}")]
        read = self.spark.read.schema(DOCUMENTS)
        if not paths:
            return self.spark.createDataFrame([], DOCUMENTS)
        return read.option("basePath", f"{self.root}/documents").parquet(*(f"{self.root}/{path}" for path in paths))

    def _write(self, table: Table, found: DataFrame, name: str, due: list[str]) -> None:
        root = f"gold/{table.name}_hour"
        places = [f"{root}/{name}/hour={hour}/made={self.made}" for hour in due]
        found = found.withColumns({"hour": F.lpad(F.col("hour").cast("string"), 2, "0"), "made": F.lit(self.made)})
        found.write.partitionBy("date", "hour", "made").mode("append").option("compression", "zstd").parquet(
            f"{self.root}/{root}"
        )
        for place in places:
            if not self.folder.exists(place):
                self._write_nothing(found, place)
        if table.is_kept:
            self._read(root, places, found.withColumn("hour", F.lit(0)).schema).createOrReplaceTempView(table.name)

    def _read(self, root: str, places: Iterable[str], schema: StructType | None = None) -> DataFrame:
        read = self.spark.read if schema is None else self.spark.read.schema(schema)
        read = read.option("basePath", f"{self.root}/{root}")
        return read.parquet(*(f"{self.root}/{place}" for place in places)).drop("made")

    def _write_nothing(self, table: DataFrame, place: str) -> None:
        """Write a file without rows: readers do not know the columns."""
        file = pa.BufferOutputStream()
        pq.write_table(to_arrow_schema(table.drop("date", "hour", "made").schema).empty_table(), file)
        self.folder.write(f"{place}/nothing.parquet", bytes(file.getvalue()))

    def _day(self, name: str, hours: Mapping[str, Version]) -> None:
        for number, table in enumerate(TABLES, 1):
            show(f"gold of {name.removeprefix('date=')}, the day: {table.name} ({number} of {len(TABLES)})")
            root = f"gold/{table.name}_hour"
            places = [f"{root}/{name}/hour={hour}/made={version.made}" for hour, version in hours.items()]
            self._read(root, places).createOrReplaceTempView("hours")
            found = self.spark.sql(table.day or "SELECT * EXCEPT (date) FROM hours")
            found.coalesce(1).write.mode("overwrite").option("compression", "zstd").parquet(
                f"{self.root}/gold/{table.name}_day/{name}/made={self.made}"
            )


def _shifted(name: str, days: int) -> str:
    return f"date={date.fromisoformat(name.removeprefix('date=')) + timedelta(days=days)}"


def _before(name: str, hour: str) -> tuple[str, str]:
    return (_shifted(name, -1), "23") if hour == "00" else (name, f"{int(hour) - 1:02}")
