"""Partitions that others take the place of: how a reader sees either the old ones or the new one, whenever it looks.

``analysis.upkeep`` writes a swap down before it makes it, puts the new partition in place, which is what counts, and
sets the old ones aside. So a reader that lists the table meanwhile, or after a kill, may find both. What is aside stays
for a while below ``usage/.replaced``, for readers on a disk that had listed it before.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from pathlib import Path
from typing import Final, Self, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program

from analysis.errors import AnalysisError
from analysis.spark.folder import Folder

REPLACED: Final = ".replaced"
"""In it is a folder for each run: partitions as they were in the table, and swaps."""
_SWAPS: Final = f"{REPLACED}/*/*.swap"
_DONE: Final = ".done"
_NOT_COUNTED: Final = 0
"""Of old partitions in swaps of earlier versions. None is found with as many, so none is taken for whole."""
_TRIES: Final = 10
_PAUSE_S: Final = 0.5
_Found = TypeVar("_Found")
WithoutOld = Callable[[_Found, Sequence["Swap"]], _Found | None]
"""Leaves out of what was listed what swaps under way say (``replaced``); None: list it again."""


@dataclass(frozen=True, slots=True)
class Swap:
    """Batches of an hour, and the one that takes their place."""

    date: str
    """YYYY-MM-DD."""
    hour: int
    old: Mapping[str, int]
    """With how many files each has."""
    new: str
    files: int
    """So many has the new one: where renaming is copying, any of them may be found with fewer, and does not count."""

    @property
    def hour_place(self) -> str:
        """The hour's directory in the table."""
        return f"date={self.date}/hour={self.hour:02d}"

    def place(self, batch: str) -> str:
        """Return a batch's directory in the table."""
        return f"{self.hour_place}/batch={batch}"

    @property
    def name(self) -> str:
        """Of the file that it is written down in."""
        return f"{self.new}.swap"

    @property
    def text(self) -> str:
        """What is written down."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> Self:
        """Return what ``text`` made a text of."""
        found = json.loads(text)
        if isinstance(found["old"], list):
            found["old"] = dict.fromkeys(found["old"], _NOT_COUNTED)
        return cls(**found)


def unfinished(usage: Folder) -> dict[str, Swap]:
    """Return swaps that were written down and whose old partitions are not all aside, by their files."""
    written = _written(usage)
    return {path: Swap.of(usage.read(path)) for path in _under_way(written, written)}


def finish(usage: Folder, path: str) -> None:
    """Note that the old partitions of a swap are aside."""
    usage.write(f"{path}{_DONE}", "")


def listed(usage: Folder, load: Callable[[], DataFrame], is_meant: Callable[[Swap], bool]) -> DataFrame:
    """Return the files that ``load`` finds, with ``date``, ``hour`` and ``batch``; not those that others replace.

    ``is_meant``: whether ``load`` lists the hour of a swap.
    """

    def without_old(files: DataFrame, swaps: Sequence[Swap]) -> DataFrame | None:
        return _without_old(files, list(filter(is_meant, swaps)))

    return consistently(usage, load, without_old)


def consistently(usage: Folder, load: Callable[[], _Found], without_old: WithoutOld[_Found]) -> _Found:
    """Return what ``load`` lists, ``without_old`` what other partitions take the place of; once more where it must."""

    def consistent() -> _Found | None:
        before = _written(usage)
        files = load()
        # Those that were done before all files were listed left nothing to be found twice.
        swaps = {path: Swap.of(usage.read(path)) for path in _under_way(_written(usage), before)}
        found = without_old(files, list(swaps.values()))
        if found is None:
            for path, swap in swaps.items():
                if _NOT_COUNTED in swap.old.values():
                    raise AnalysisError(
                        f"{usage.uri_of(path)}: an earlier version of Sluice was ended while it compacted "
                        f"{swap.hour_place}, and which of its files count is not known: run `sluice analyze compact`, "
                        "which puts it right"
                    )
        return found

    return steadily(usage, consistent)


def steadily(usage: Folder, read: Callable[[], _Found | None]) -> _Found:
    """Return what ``read`` does; once more where it returns None, or fails while the table was changed."""
    for _ in range(_TRIES):
        before = _state(usage)
        try:
            found = read()
        except (AnalysisError, PySparkException, Py4JJavaError):
            if _state(usage) == before:
                raise
            time.sleep(_PAUSE_S)  # what has begun to be set aside is soon aside
        else:
            if found is not None:
                return found
    raise AnalysisError("the table is being compacted faster than it can be read: try again when that is over")


def set_aside(path: Path) -> Path | None:
    """Return where a file of the table is that has gone since it was listed; None: it is not kept."""
    if len(path.parents) < 4:
        return None
    usage = path.parents[3]
    return next(usage.glob(f"{REPLACED}/*/{path.relative_to(usage)}"), None)


def replaced(swap: Swap, files: Mapping[str, int]) -> Collection[str] | None:
    """Return which batches of its hour, which was listed, do not count, by how many ``files`` each was found with.

    None: that says nothing, for they were listed in between.
    """
    if files.get(swap.new) == swap.files:
        return swap.old.keys()
    if all(files.get(batch) == number for batch, number in swap.old.items()):
        return [swap.new]
    return None


def _written(usage: Folder) -> set[str]:
    return {entry.path for entry in usage.entries(f"{_SWAPS}*")}


def _under_way(written: Collection[str], before: Collection[str]) -> list[str]:
    """Return the files of swaps of which it was not noted before that they are done."""
    return sorted(path for path in written if path.endswith(".swap") and f"{path}{_DONE}" not in before)


def _state(usage: Folder) -> tuple[set[str], dict[str, list[str]]]:
    """Return what changes with each change of the table: swaps, and what is aside of those under way."""
    written = _written(usage)
    aside = {}
    for path in _under_way(written, written):
        place = path.rpartition("/")[0]
        aside[path] = [entry.path for entry in usage.entries(f"{place}/date=*/hour=*/batch=*")]
    return written, aside


def _without_old(files: DataFrame, swaps: Sequence[Swap]) -> DataFrame | None:
    hours = [(swap, _in_hour(swap)) for swap in swaps]
    if not hours:
        return files
    concerned = files.where(reduce(Column.__or__, (hour for _, hour in hours))).select("date", "hour", "batch")
    found = Counter((str(row.date), int(row.hour), str(row.batch)) for row in concerned.collect())
    for swap, hour in hours:
        there = {batch: found[key] for key in found for *at, batch in [key] if at == [swap.date, swap.hour]}
        if (old := replaced(swap, there)) is None:
            return None
        files = files.where(~(hour & F.col("batch").isin(*old)))
    return files


def _in_hour(swap: Swap) -> Column:
    return (F.col("date").cast("string") == swap.date) & (F.col("hour") == swap.hour)
