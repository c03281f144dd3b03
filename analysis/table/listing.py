"""Files of the usage table as they were listed, and which of them a period needs."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.spark.folder import Folder
from analysis.table import summaries
from analysis.table.scan import PATH, KeptDays, UsageRows
from analysis.table.summaries import SUMMARIES, Listed

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PATHS: Final = pa.schema([(PATH, pa.string())])


@dataclass(frozen=True, slots=True)
class Files:
    """Files of a time, aware (None: no bound)."""

    listed: DataFrame
    """``path``, ``length``, ``date``, ``hour``; and ``content`` where workers cannot open ``path``."""
    begin: datetime | None
    end: datetime | None

    def rows(self, begin: datetime | None, end: datetime | None) -> UsageRows:
        """Return the rows of a period, which is no longer than this."""
        files = self._opened(of_hours(self.listed, begin, end))

        def since(moment: datetime) -> UsageRows:
            return self.rows(moment, end)

        return UsageRows(files, unix_us(begin), unix_us(end), since=since)

    def all(self) -> list[Listed]:
        """Return what there is, without contents."""
        chosen = self.listed.select(PATH, "length", F.col("date").cast("string"), F.col("hour").cast("int"))
        return [Listed(*row.values()) for row in of_hours(chosen, self.begin, self.end).toArrow().to_pylist()]

    def kept(self, warehouse: Folder, begin: datetime | None, end: datetime | None) -> KeptDays | None:
        """Return the days of a period that need not be read (``summaries``); None where there are none."""
        made = summaries.made(warehouse)
        if not made:
            return None
        known = self.all()
        digests = summaries.digests(known, summaries.whole_days(known, begin, end))
        places = {day: summaries.place_of(day, digest) for day, digest in digests.items() if (day, digest) in made}
        if not places:
            return None
        spark, wanted = self.listed.sparkSession, set(places.values())

        def files(name: str) -> DataFrame:
            entries = warehouse.entries(f"{SUMMARIES}/date=*/*/{name}/*.parquet")
            paths = [each.path for each in entries if each.path.rsplit("/", 2)[0] in wanted]
            return _files(spark, warehouse, list(map(warehouse.uri_of, paths)))

        day = F.col("date").cast("string")
        others = ~day.isin(*places)
        before_others = [each for each in places if _after(each) not in places]
        led_in = others | (day.isin(*before_others) & (F.col("hour") == 23)) if before_others else others
        wider = of_hours(self.listed, self.begin, self.end)
        return KeptDays(
            tuple(map(summaries.day_of, places)),
            files,
            rest=self._opened(of_hours(self.listed.where(others), begin, end)),
            rest_led_in=self._opened(wider.where(led_in)),
        )

    def _opened(self, chosen: DataFrame) -> DataFrame:
        """Return some of the files as ``scan.FILES``."""
        return chosen.select(*(name for name in (PATH, "content") if name in chosen.columns))


def unix_us(moment: datetime | None) -> int | None:
    return None if moment is None else (moment - _EPOCH) // timedelta(microseconds=1)


def _files(spark: SparkSession, warehouse: Folder, paths: list[str]) -> DataFrame:
    if warehouse.is_on_disk or not paths:
        return spark.createDataFrame(pa.table([paths], schema=_PATHS))
    return spark.read.format("binaryFile").load(paths).select(PATH, "content")


def _after(day: str) -> str:
    return str(date.fromisoformat(day) + timedelta(days=1))


def of_hours(files: DataFrame, begin: datetime | None, end: datetime | None) -> DataFrame:
    """Leave out hours outside of the period, by partition columns alone: they are never opened."""
    hour = F.format_string("%s %02d", F.col("date").cast("string"), F.col("hour"))
    first, last = _hours(begin, end)
    if first is not None:
        files = files.where(hour >= first)
    if last is not None:
        files = files.where(hour <= last)
    return files


def is_within(hour: str, begin: datetime | None, end: datetime | None) -> bool:
    """Whether ``of_hours`` leaves in an hour (YYYY-MM-DD HH)."""
    first, last = _hours(begin, end)
    return (first is None or hour >= first) and (last is None or hour <= last)


def _hours(begin: datetime | None, end: datetime | None) -> list[str | None]:
    return [None if each is None else f"{each.astimezone(UTC):%Y-%m-%d %H}" for each in (begin, end)]
