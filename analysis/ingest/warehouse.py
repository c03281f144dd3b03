"""Where ingestion writes: ``<warehouse>/usage`` and ``documents``, by (date, hour, batch), and ``rejected`` by batch.

Plain Parquet, for any engine to read. A batch is a partition because it is replaced as a whole when it is run again.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program
from pyspark.sql.types import StructType

from analysis.errors import AnalysisError
from analysis.ingest.known import HOUR_MS, Boot, BootName, Key
from analysis.schema import DOCUMENTS as COLUMNS_OF_DOCUMENTS
from analysis.schema import ROWS
from analysis.spark.folder import Folder
from quotas.names import OTHER

USAGE, DOCUMENTS, REJECTED = "usage", "documents", "rejected"
LAYOUT_VERSION: Final = 1
_MARK: Final = "sluice-warehouse.json"
_BOOTS_WITHIN: Final = timedelta(days=7)
"""A proxy that was silent for longer, and goes on, is taken for one of which nothing is stored."""


class Warehouse:
    """The tables of one warehouse; ``besides`` is the batch that is being written, and to be replaced."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark = spark
        self._root = root.rstrip("/")
        self._folder = Folder(spark, root)

    def create(self) -> None:
        """Make it a warehouse, if it is none yet. Raises AnalysisError for one of another version."""
        if not self._folder.exists(_MARK):
            self._mark()
        try:
            said = json.loads(self._folder.read(_MARK))
            version = said["version"]
        except (ValueError, TypeError, KeyError):
            raise AnalysisError(
                f'{self._root}/{_MARK} is damaged: it should be {{"version": {LAYOUT_VERSION}, "documents": true}}'
            ) from None
        if version != LAYOUT_VERSION:
            raise AnalysisError(
                f"{self._root} is a warehouse of version {version}, and this Sluice knows {LAYOUT_VERSION}: "
                "take the Sluice that wrote it, or a newer one"
            )
        if not said.get("documents"):
            self._documents_of_rows()
            self._mark()

    def _mark(self) -> None:
        """Note that it has the present form, with a table of documents: killed before, all is done again."""
        self._folder.write(_MARK, json.dumps({"version": LAYOUT_VERSION, "rejected": 2, "documents": True}) + "\n")

    def write(self, table: DataFrame, name: str, *by: str) -> None:
        """Write a batch's part of a table: partitions that it has replace those of an earlier attempt."""
        to = table.write.partitionBy(*by).mode("overwrite").option("partitionOverwriteMode", "dynamic")
        to.option("compression", "zstd").parquet(f"{self._root}/{name}")

    def publish(self, batch: str, files: Iterable[tuple[int, pa.BinaryScalar]]) -> None:
        """Put whole files of rows, by hours since 1970, in place of what an earlier attempt of the batch left.

        They are written aside first, where names begin with a dot: a partition that is there is whole.
        """
        aside = f"{USAGE}/.staging-{batch}"
        self._folder.remove(aside)
        hours: Counter[str] = Counter()
        for hour, content in files:
            at = datetime.fromtimestamp(hour * HOUR_MS // 1000, UTC)
            place = f"date={at:%Y-%m-%d}/hour={at:%H}"
            self._folder.write(f"{aside}/{place}/part-{hours[place]:05}.parquet", content.as_py())
            hours[place] += 1
        for place in sorted(hours):
            self._folder.move(f"{aside}/{place}", f"{USAGE}/{place}/batch={batch}")
        self._folder.remove(aside)

    def keys(self, hour: int, besides: str) -> list[Key]:
        """Return the documents of an hour (since 1970) that other batches have stored."""
        at = datetime.fromtimestamp(hour * HOUR_MS // 1000, UTC)
        stored = self._documents(f"date={at:%Y-%m-%d}/hour={at:%H}")
        if stored is None:
            return []
        found = stored.where(F.col("batch") != besides).select("instance", "boot", "seq").toArrow()
        return [Key(*each) for each in zip(*(column.to_pylist() for column in found.columns), strict=True)]

    def boots(self, boots: Collection[BootName], since_hour: int, besides: str) -> Mapping[BootName, Boot]:
        """Return what other batches have stored of runs of proxies, up to a week before an hour."""
        since = datetime.fromtimestamp(since_hour * HOUR_MS // 1000, UTC) - _BOOTS_WITHIN
        stored = self._documents("")
        if stored is None:
            return {}
        asked = self._spark.createDataFrame([*boots], "instance string, boot string")
        found = (
            stored.where((F.col("batch") != besides) & (F.col("date") >= F.lit(since.date())))
            .join(F.broadcast(asked), ["instance", "boot"])
            .groupBy("instance", "boot")
            .agg(F.expr("IF(bool_or(is_first), 0, min(seq))"), F.max("seq"), F.count_distinct("seq"), F.max("dropped"))
        )
        return {(instance, boot): Boot(*rest) for instance, boot, *rest in found.collect()}

    def newest_hour(self, until_ms: int, besides: str) -> int | None:
        """Return the newest hour (since 1970) that another batch has stored of, before a moment."""
        for date in reversed(self._folder.names(f"{DOCUMENTS}/date=*")):
            for place in reversed(self._folder.entries(f"{DOCUMENTS}/{date}/hour=*")):
                at = datetime.strptime(place.path.removeprefix(f"{DOCUMENTS}/"), "date=%Y-%m-%d/hour=%H").replace(
                    tzinfo=UTC
                )
                hour = round(at.timestamp() * 1000) // HOUR_MS
                if hour * HOUR_MS < until_ms and set(self._folder.names(f"{place.path}/batch=*")) - {
                    f"batch={besides}"
                }:
                    return hour
        return None

    def _documents(self, place: str) -> DataFrame | None:
        path = f"{DOCUMENTS}/{place}".rstrip("/")
        if not self._folder.exists(path):
            return None
        read = self._spark.read.schema(COLUMNS_OF_DOCUMENTS).option("basePath", f"{self._root}/{DOCUMENTS}")
        return read.parquet(f"{self._root}/{path}")

    def _documents_of_rows(self) -> None:
        """Make the table of documents of the rows that an earlier version has stored."""
        if not self._folder.names(f"{USAGE}/date=*"):
            return
        rows = self._spark.read.schema(StructType([*ROWS]).add("batch", "string")).parquet(f"{self._root}/{USAGE}")
        rows.createOrReplaceTempView("rows_of_earlier")
        found = self._spark.sql(f"""
            SELECT cluster, instance, boot, seq, min(unix_millis(time)) AS begin_ms,
                max(unix_millis(time) + interval_ms) AS end_ms, max(dropped_documents) AS dropped, count(*) AS rows,
                count_if(client_id = '{OTHER}') AS rows_of_others,
                count_if(user IS NULL AND ip IS NULL) AS rows_of_nobody, false AS late, false AS is_first,
                date, lpad(hour, 2, '0') AS hour, batch
            FROM rows_of_earlier GROUP BY cluster, instance, boot, seq, date, hour, batch""")
        found.coalesce(1).write.partitionBy("date", "hour", "batch").mode("overwrite").parquet(
            f"{self._root}/{DOCUMENTS}"
        )
