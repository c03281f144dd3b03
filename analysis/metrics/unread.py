"""Documents that ``ingest`` could not read: how many, whose they say they are, and of which hour."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program
from pyspark.sql.pandas.types import from_arrow_schema

from analysis.metrics.period import Period
from analysis.table.arrays import added, ints, together
from analysis.table.documents import BOOT
from analysis.table.scan import UsageRows
from analysis.table.schema import COUNT, MOST_LABEL_BYTES, TEXT

FIGURES: Final = ("rejected", "wrong_clock")
_CLOCK: Final = ("wrong clock", "time_ms ")
"""What the fault of a document begins with whose time cannot be (``ingest.faults``); the second is of earlier ones."""
_HEAD_BYTES: Final = 8192
"""Of a text in which its fields stand, before its rows."""
_HOUR_MS: Final = 3_600_000
_DAY_S: Final = 86_400
_END_OF_TIME_MS: Final = 253_402_300_800_000
_MOST_LINES: Final = 1000
"""Boots and hours that are told apart: names in what cannot be read are anybody's, and any number."""
_SAID: Final = pa.schema([*((name, TEXT) for name in BOOT), ("hour", COUNT), *((name, COUNT) for name in FIGURES)])


def unread(rejected: DataFrame | None, usage: UsageRows, period: Period) -> pa.Table:
    """Return BOOT, ``hour`` (since 1970) and FIGURES of what is ``rejected``, and was to be in the period of ``usage``.

    What names no hour that can be is of none (null); it is counted if it was rejected in the period, or within a day
    after it. ``wrong_clock`` are those of the ``rejected`` whose time cannot be.
    """
    if rejected is None:
        return _SAID.empty_table()
    begin_s = (usage.begin_us or 0) / 1e6
    end_s = period.end.timestamp() if usage.end_us is None else usage.end_us / 1e6
    head = F.substring(F.col("value"), 1, _HEAD_BYTES).alias("head")
    texts = rejected.select(head, "fault", F.unix_timestamp("rejected_at").alias("at_s"))
    read = _Read(begin_s, end_s)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return read(batches)

    said = _added(texts.mapInArrow(run, from_arrow_schema(_SAID)).toArrow())
    order = [("rejected", "descending"), *((name, "ascending") for name in (*BOOT, "hour"))]
    lines = said.sort_by(order)
    rest = lines.slice(_MOST_LINES)
    return pa.concat_tables([lines.slice(0, _MOST_LINES), *([_of_nobody(rest)] if len(rest) else [])])


def _added(lines: pa.Table) -> pa.Table:
    return together([added(lines, (*BOOT, "hour"), dict.fromkeys(FIGURES, "sum"))], _SAID)


def _of_nobody(lines: pa.Table) -> pa.Table:
    nobody: dict[str, Any] = dict.fromkeys((*BOOT, "hour"))
    return pa.Table.from_pylist([{**nobody, **{name: int(ints(lines, name).sum()) for name in FIGURES}}], _SAID)


@dataclass(frozen=True, slots=True)
class _Read:
    """From texts to _SAID of those that were to be in a period."""

    begin_s: float
    end_s: float

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            lines = [
                {**said, "rejected": 1, "wrong_clock": int(is_clock)}
                for head, fault, at_s in zip(*(column.to_pylist() for column in batch.columns), strict=True)
                for is_clock in [(fault or "").startswith(_CLOCK)]
                for said in [_fields(head or b"", is_clock)]
                if self._is_meant(said["hour"], at_s)
            ]
            yield from _added(pa.Table.from_pylist(lines, _SAID)).to_batches()

    def _is_meant(self, hour: int | None, at_s: int) -> bool:
        if hour is None:
            return self.begin_s <= at_s < self.end_s + _DAY_S
        return hour * 3600 + 3599 >= self.begin_s and hour * 3600 < self.end_s


def _fields(head: bytes, is_clock_wrong: bool) -> dict[str, Any]:
    """Return what a text says of BOOT, and its ``hour``; null where it does not, or cannot be believed."""
    before, rows, _ = head.partition(b'"rows"')
    try:
        found = orjson.loads(before + b'"rows":0}' if rows else head)
    except orjson.JSONDecodeError:
        found = {}
    if not isinstance(found, dict):
        found = {}
    names = {name: found.get(name) for name in BOOT}
    known = {name: each if _is_label(each) else None for name, each in names.items()}
    time_ms = found.get("time_ms")
    hour = None
    if type(time_ms) is int and not is_clock_wrong and 0 < time_ms < _END_OF_TIME_MS:
        hour = time_ms // _HOUR_MS
    return {**known, "hour": hour}


def _is_label(value: Any) -> bool:
    return isinstance(value, str) and len(value.encode(errors="replace")) <= MOST_LABEL_BYTES
