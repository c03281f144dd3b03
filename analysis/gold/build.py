"""Makes gold for hours with new batches."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from analysis.charges import charges, present_in, rules, with_defaults
from analysis.gold import inventory
from analysis.gold.readings import SCHEMA as READINGS
from analysis.gold.readings import readings
from analysis.gold.tables import KEPT, TABLES, query, query_of_day
from analysis.schema import DOCUMENTS, KEYS, ROWS
from analysis.spark.folder import Folder
from analysis.spark.progress import show, to_stderr
from analysis.spark.writer import Writer
from analysis.warehouse import Inventory, Version, located

_ROWS_OF_TASK: Final = 250_000
"""The rows of a task that makes readings: some 100 MB."""


def make(spark: SparkSession, warehouse: str) -> int:
    """Make the tables of all hours whose batches have changed; return the number of hours."""
    if not Folder(spark, warehouse).names("usage/date=*"):
        return 0
    with Writer(spark, warehouse, "gold") as writer:
        dates = writer.folder.names("usage/date=*")
        builder = _Builder(spark, warehouse.rstrip("/"), writer.folder, dates[-1])
        made, writes, removes = 0, dict[str, str](), list[str]()
        for name in dates:
            change = builder.date(name)
            made += change.hours
            # Dates are visible in their order, and those that a report may have seen together: else it would know of
            # late documents in one, and not in the other. The first hour of a new date is due in any case.
            if writes and change.is_new:
                writer.publish(writes=writes, removes=removes)
                writes, removes = {}, []
            writes |= change.writes
            removes += change.removes
        if writes:
            writer.publish(writes=writes, removes=removes)
        return made


@dataclass(frozen=True, slots=True)
class _Change:
    """The change of files that makes a date's new gold visible."""

    hours: int
    """How many were made."""
    is_new: bool
    """The date had no gold."""
    writes: Mapping[str, str]
    removes: Sequence[str]


@dataclass(frozen=True, slots=True)
class _Builder:
    """Builds the gold of a warehouse."""

    spark: SparkSession
    root: str
    folder: Folder
    newest: str
    """The newest date."""
    made: str = field(default_factory=lambda: uuid4().hex[:12])
    """The name of new versions."""

    def date(self, name: str) -> _Change:
        """Make the due hours of ``date=YYYY-MM-DD``."""
        begun_s = time.monotonic()  # noqa: TID251  how long it took
        stored, known = self._stored(name), inventory.read(self.folder, name)
        due = sorted(self._due(name, stored, known.hours))
        hours = {**known.hours, **{hour: Version(self.made, stored[hour]) for hour in due}}
        day = known.day if known.day and not due and known.day.sources == sorted(hours) else None
        if due:
            self._hours(name, due)
        if hours and name < self.newest and day is None:
            self._day(name, hours)
            day = Version(self.made, sorted(hours))
        new = Inventory(hours, day)
        if due:
            took_s = time.monotonic() - begun_s  # noqa: TID251  as above
            to_stderr(f"gold of {name.removeprefix('date=')}: hours {', '.join(due)} in {took_s:.1f} s")
        if new == known:
            return _Change(0, not known.hours, {}, ())
        removes = self._unlisted(name, known, new)
        return _Change(len(due), not known.hours, {inventory.place(name): inventory.text(name, new)}, removes)

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

    def _hours(self, name: str, due: list[str]) -> None:
        hours = [(name, hour) for hour in due]
        before = [_before(*hour) for hour in hours if _before(*hour) not in hours]
        usage = self._rows("usage", ROWS, hours)
        read = [*hours, *before]
        keys = self._keys(hours).cache()
        recent_keys = self._keys(read) if before else keys
        usage.createOrReplaceTempView("usage")
        sums = self.spark.sql(query("sums")).cache()
        rows, columns = self._footers(read)
        present = present_in(columns)
        views = {
            "sums": sums,
            "documents": self._rows("documents", DOCUMENTS, hours),
            "keys": keys,
            "rules": (counters := rules(self.spark, keys, present).cache()),
            "charges": charges(self.spark, usage, present),
            "recent": charges(self.spark, self._with_windows_before(usage, recent_keys, before), present),
            "recent_keys": recent_keys,
            "recent_rules": rules(self.spark, recent_keys, present) if before else counters,
        }
        for view, of_view in views.items():
            of_view.createOrReplaceTempView(view)
        which = due[0] if len(due) == 1 else f"{due[0]} to {due[-1]}"
        for number, table in enumerate(TABLES, 1):
            show(f"gold of {name.removeprefix('date=')}, {which}: {table} ({number} of {len(TABLES)})")
            made = self.spark.sql(query(table, tasks=1 + rows // _ROWS_OF_TASK))
            if table == "readings":
                due_hours = F.col("hour").isin([int(hour) for hour in due])
                made = made.mapInArrow(readings, READINGS).where(due_hours & (F.col("date") == name[-10:]))
            self._write(table, made, name, due)
            if table == "client":
                self.spark.sql(query("clocks")).createOrReplaceTempView("clocks")
        for cached in (keys, sums, counters):
            cached.unpersist()

    def _with_windows_before(self, usage: DataFrame, keys: DataFrame, before: list[tuple[str, str]]) -> DataFrame:
        """Add the rows of hours before whose windows end in the hours of ``usage``."""
        before = [hour for hour in before if self._paths("usage", [hour])]
        if before:
            window = "greatest(samples * sample_ms, controller_samples * controller_sample_ms) + nominal_ms"
            [[window_ms]] = keys.agg(F.max(F.expr(window))).collect()
        for date_, hour in before:
            end = datetime.fromisoformat(f"{date_.removeprefix('date=')}T{hour}:00:00+00:00") + timedelta(hours=1)
            rows = self._rows("usage", ROWS, [(date_, hour)])
            usage = usage.union(rows.where(F.col("time") >= end - timedelta(milliseconds=window_ms)))
        return usage

    def _keys(self, hours: Iterable[tuple[str, str]]) -> DataFrame:
        return self._rows("keys", KEYS, hours).drop("date", "hour").distinct()

    def _rows(self, table: str, schema: StructType, hours: Iterable[tuple[str, str]]) -> DataFrame:
        read = self.spark.read.option("basePath", f"{self.root}/{table}").schema(schema)
        paths = self._paths(table, hours)
        rows = read.parquet(*paths) if paths else self.spark.createDataFrame([], schema)
        return with_defaults(rows.select(schema.names))

    def _footers(self, hours: Sequence[tuple[str, str]]) -> tuple[int, set[str]]:
        """Return the number of rows, and the columns that any file has: by Arrow, as Spark would take two jobs."""
        rows, columns = 0, set[str]()
        for table in ("usage", "keys"):
            for path in self._paths(table, hours):
                files, place = located(path)
                for each in files.get_file_info(FileSelector(place, recursive=True)):
                    if each.is_file:
                        footer = pq.read_metadata(each.path, filesystem=files)
                        columns.update(footer.schema.names)
                        rows += footer.num_rows if table == "usage" else 0
        return rows, columns

    def _paths(self, table: str, hours: Iterable[tuple[str, str]]) -> list[str]:
        places = [f"{table}/{date_}/hour={hour}" for date_, hour in hours]
        return [f"{self.root}/{place}" for place in places if self.folder.exists(place)]

    def _write(self, table: str, found: DataFrame, name: str, due: list[str]) -> None:
        root = f"gold/{table}_hour"
        places = [f"{root}/{name}/hour={hour}/made={self.made}" for hour in due]
        found = found.withColumns({"hour": F.lpad(F.col("hour").cast("string"), 2, "0"), "made": F.lit(self.made)})
        found.write.partitionBy("date", "hour", "made").mode("append").option("compression", "zstd").parquet(
            f"{self.root}/{root}"
        )
        for place in places:
            if not self.folder.exists(place):
                self._write_nothing(found, place)
        if table in KEPT:
            self._read(root, places, found.withColumn("hour", F.lit(0)).schema).createOrReplaceTempView(table)

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
            show(f"gold of {name.removeprefix('date=')}, the day: {table} ({number} of {len(TABLES)})")
            root = f"gold/{table}_hour"
            places = [f"{root}/{name}/hour={hour}/made={version.made}" for hour, version in hours.items()]
            self._read(root, places).createOrReplaceTempView("hours")
            found = self.spark.sql(query_of_day(table))
            found.coalesce(1).write.mode("overwrite").option("compression", "zstd").parquet(
                f"{self.root}/gold/{table}_day/{name}/made={self.made}"
            )


def _shifted(name: str, days: int) -> str:
    return f"date={date.fromisoformat(name.removeprefix('date=')) + timedelta(days=days)}"


def _before(name: str, hour: str) -> tuple[str, str]:
    return (_shifted(name, -1), "23") if hour == "00" else (name, f"{int(hour) - 1:02}")
