"""Where the tables are, and how they are read: ``<warehouse>/usage/date=YYYY-MM-DD/hour=HH/batch=…/*.parquet``.

Plain Parquet, for any engine to read. A batch of ingestion is a partition, because it is replaced as a whole when it
is run again; ``analysis.ingest.job`` writes, all others read through ``usage``.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import PurePath
from typing import Final

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.errors import AnalysisError
from analysis.spark.folder import Folder
from analysis.table import at_hand
from analysis.table.listing import Files, is_within, of_hours, unix_us
from analysis.table.scan import PATH, UsageRows
from analysis.table.swaps import Swap, consistently, listed, replaced

USAGE: Final = "usage"
REJECTED: Final = "rejected"
PARTITIONS: Final = ("date", "hour", "batch")
LAYOUT_VERSION: Final = 1
_REJECTED_VERSION: Final = 2
"""Of rejected texts, which were strings in 1 and are bytes: no reader of usage minds."""
_MARK: Final = "sluice-warehouse.json"
_KEYS: Final = "instance string, boot string, seq long, batch string"
_Keys = tuple[list[Row], Counter[str]]
"""And the batches of the files that were listed."""
_MINUTES: Final = "%Y-%m-%d %H:%M"
_AROUND: Final = timedelta(hours=1)
"""How much more than a period is there for what is seen only beside it (``UsageRows.around``)."""


def path_of(warehouse: str, table: str) -> str:
    """Return the path or URI of a table."""
    return f"{warehouse.rstrip('/')}/{table}"


def create(spark: SparkSession, warehouse: str) -> None:
    """Make a directory a warehouse, if it is none yet. Raises AnalysisError for one of another version."""
    folder = Folder(spark, warehouse)
    if folder.exists(_MARK):
        _check_version(folder, warehouse)
    else:
        mark(folder)


def mark(folder: Folder) -> None:
    """Note that a warehouse has the present form."""
    folder.write(_MARK, json.dumps({"version": LAYOUT_VERSION, "rejected": _REJECTED_VERSION}) + "\n")


def has_old_rejected(folder: Folder) -> bool:
    """Whether the texts that a warehouse has rejected are kept as strings."""
    return bool(json.loads(folder.read(_MARK)).get("rejected", 1) < _REJECTED_VERSION)


def folders(spark: SparkSession, warehouse: str) -> tuple[Folder, Folder]:
    """Return a warehouse and its usage table as folders. Raises AnalysisError where there is none, or nothing in it."""
    _dates(spark, warehouse)
    return Folder(spark, warehouse), Folder(spark, path_of(warehouse, USAGE))


def usage(
    spark: SparkSession,
    warehouse: str,
    begin: datetime | None = None,
    end: datetime | None = None,
    *,
    with_summaries: bool = True,
) -> UsageRows:
    """Return the rows whose intervals begin in [begin, end), both aware; None: no bound.

    Raises AnalysisError where there is no warehouse, one of a version not known, or no file for the period; that no row
    of the files is in it, is for the first who reads them to say (``UsageRows.nothing``). ``with_summaries``: days of
    which tables are kept are so (``UsageRows.kept``).
    """
    dates = _dates(spark, warehouse)
    nothing = f"no usage records{_period(begin, end)}: {warehouse} has them{_period(*bounds(spark, warehouse))}"
    found = _rows(spark, warehouse, dates, begin, end, with_summaries=with_summaries)
    if found is None:
        raise AnalysisError(nothing)

    @cache
    def around() -> UsageRows:
        wider = found.around() if found.around else found
        return replace(wider, rejected=rejected(spark, warehouse))

    return replace(found, nothing=nothing, around=around)


def rejected(spark: SparkSession, warehouse: str) -> DataFrame | None:
    """Return ``fault``, ``value`` (binary) and ``rejected_at`` of what could not be read; None: nothing is there."""
    table = path_of(warehouse, REJECTED)
    if not Folder(spark, warehouse).names(f"{REJECTED}/batch=*/*.parquet"):
        return None
    found = spark.read.schema("fault string, value binary").parquet(table)
    return found.select("fault", "value", F.col("_metadata.file_modification_time").alias("rejected_at"))


def bounds(spark: SparkSession, warehouse: str) -> tuple[datetime, datetime]:
    """Return the begin of the first hour that is stored, and the end of the last. Raises AnalysisError as ``usage``."""
    dates = _dates(spark, warehouse)
    folder = Folder(spark, path_of(warehouse, USAGE))
    return min(_hours(folder, dates[0])), max(_hours(folder, dates[-1])) + timedelta(hours=1)


def newest_end(spark: SparkSession, warehouse: str, now: datetime) -> datetime:
    """Return the end of the last stored hour that has begun; where none has, of the last. Raises AnalysisError.

    Documents by a clock that is ahead must not decide which period is meant where none is said.
    """
    begun = newest_hour(spark, warehouse, until=now)
    return bounds(spark, warehouse)[1] if begun is None else begun + timedelta(hours=1)


def newest_hour(
    spark: SparkSession, warehouse: str, besides: str | None = None, until: datetime | None = None
) -> datetime | None:
    """Return the begin of the last hour before ``until`` that a batch other than ``besides`` stored, if any is."""
    folder = Folder(spark, path_of(warehouse, USAGE))
    for date in reversed(folder.names("date=*")):
        for hour in sorted(_hours(folder, date), reverse=True):
            if until is not None and hour >= until:
                continue
            if set(folder.names(f"{date}/hour={hour:%H}/batch=*")) - {f"batch={besides}"}:
                return hour
    return None


def stored_keys(spark: SparkSession, warehouse: str, date: str, hour: int, besides: str) -> list[Row]:
    """Return (instance, boot, seq) of what batches other than ``besides`` stored of an hour (YYYY-MM-DD), each once."""
    table = path_of(warehouse, USAGE)
    folder = Folder(spark, table)
    place = f"date={date}/hour={hour:02d}"

    def load() -> _Keys:
        if not folder.exists(place):
            return [], Counter()
        rows = spark.read.schema(_KEYS).option("basePath", table).parquet(f"{table}/{place}")
        keys = rows.where(F.col("batch") != besides).drop("batch", "date", "hour").distinct().collect()
        return keys, Counter(PurePath(file).parent.name.removeprefix("batch=") for file in rows.inputFiles())

    def unless_between(found: _Keys, swaps: Sequence[Swap]) -> _Keys | None:
        """Old and new files may both be there, for a key is found once; neither, where a listing has several pages."""
        of_hour = (swap for swap in swaps if swap.hour_place == place)
        return None if any(replaced(swap, found[1]) is None for swap in of_hour) else found

    keys, _ = consistently(folder, load, unless_between)
    return keys


def _hours(folder: Folder, date: str) -> list[datetime]:
    day = datetime.strptime(date, "date=%Y-%m-%d").replace(tzinfo=UTC)
    return [day + timedelta(hours=int(name.removeprefix("hour="))) for name in folder.names(f"{date}/hour=*")]


def _dates(spark: SparkSession, warehouse: str) -> list[str]:
    folder = Folder(spark, warehouse)
    if not folder.exists():
        raise AnalysisError(f"{warehouse}: there is no such directory; --warehouse is what `ingest` was given")
    if not folder.exists(_MARK):
        raise AnalysisError(f"{warehouse} is no warehouse: --warehouse is what `sluice analyze ingest` was given")
    _check_version(folder, warehouse)
    dates = folder.names(f"{USAGE}/date=*")
    if not dates:
        raise AnalysisError(f"{warehouse} has no usage records yet: run `sluice analyze ingest`")
    return dates


def _check_version(folder: Folder, warehouse: str) -> None:
    try:
        version = json.loads(folder.read(_MARK))["version"]
    except (ValueError, TypeError, KeyError):
        raise AnalysisError(f'{warehouse}/{_MARK} is damaged: it should be {{"version": {LAYOUT_VERSION}}}') from None
    if version != LAYOUT_VERSION:
        raise AnalysisError(
            f"{warehouse} is a warehouse of version {version}, and this Sluice knows {LAYOUT_VERSION}: "
            "take the Sluice that wrote it, or a newer one"
        )


def files(spark: SparkSession, warehouse: str, begin: datetime | None, end: datetime | None) -> Files:
    """Return the files of a period, and of an hour before and after. Raises AnalysisError as ``usage``."""
    return _listed(spark, path_of(warehouse, USAGE), _dates(spark, warehouse), begin, end)


def _rows(
    spark: SparkSession,
    warehouse: str,
    dates: list[str],
    begin: datetime | None,
    end: datetime | None,
    *,
    with_summaries: bool,
) -> UsageRows | None:
    """Return the rows of a period; None if it has no file."""
    table = path_of(warehouse, USAGE)
    few = at_hand.files(Folder(spark, table), _within(dates, begin, end), begin, end)
    if few is not None:
        found = UsageRows(None, unix_us(begin), unix_us(end), at_hand=few, session=spark)

        def around() -> UsageRows:
            return _rows(spark, warehouse, dates, *_around(begin, end), with_summaries=False) or found

        return replace(found, around=around) if few.num_rows else None
    known = _listed(spark, table, dates, begin, end)
    kept = known.kept(Folder(spark, warehouse), begin, end) if with_summaries else None
    wider = known.rows(known.begin, known.end)
    return replace(known.rows(begin, end), kept=kept, around=lambda: wider)


def _listed(spark: SparkSession, table: str, dates: list[str], begin: datetime | None, end: datetime | None) -> Files:
    folder = Folder(spark, table)
    since, until = _around(begin, end)
    within = _within(dates, since, until)

    def load() -> DataFrame:
        reader = spark.read.format("binaryFile").options(basePath=table, pathGlobFilter="*.parquet")
        # Without a date there is no directory to list, and one of them at least has to be named.
        files = of_hours(reader.load([f"{table}/{date}" for date in within or dates[:1]]), since, until)
        if not folder.is_on_disk:
            return files
        paths = files.select(PATH, "length", *PARTITIONS)
        # Spark looks at each file whenever it is asked for its path, and fails where it is set aside since.
        return paths.localCheckpoint() if str(spark.sparkContext.master).startswith("local") else paths

    def is_meant(swap: Swap) -> bool:
        return is_within(f"{swap.date} {swap.hour:02}", since, until)

    return Files(listed(folder, load, is_meant), since, until)


def _around(begin: datetime | None, end: datetime | None) -> tuple[datetime | None, datetime | None]:
    return begin and _moved(begin, -_AROUND), end and _moved(end, _AROUND)


def _moved(moment: datetime, by: timedelta) -> datetime:
    try:
        return moment + by
    except OverflowError:  # there is no farther
        return moment


def _within(dates: list[str], begin: datetime | None, end: datetime | None) -> list[str]:
    """Return the directories of dates that a period touches."""
    first = f"date={begin.astimezone(UTC):%Y-%m-%d}" if begin else dates[0]
    last = f"date={end.astimezone(UTC):%Y-%m-%d}" if end else dates[-1]
    return [date for date in dates if first <= date <= last]


def _period(begin: datetime | None, end: datetime | None) -> str:
    since = f" from {begin.astimezone(UTC):{_MINUTES}}" if begin else ""
    until = f" to {end.astimezone(UTC):{_MINUTES}}" if end else ""
    return f"{since}{until} UTC" if since or until else ""
