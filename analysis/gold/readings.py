"""Readings: the share of its limit that each counter had used, second by second, as a distribution.

Use enters the sum of its proxy's window with its interval, and leaves it a window later. A counter's sum changes only
then; between two changes, sum over limit is one reading, of so many seconds. Several proxies, with intervals of
different lengths, may use one counter: use per second of each window is added up.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_HOUR_S: Final = 3600
_FAR: Final = 2**40
"""More seconds than any time has, between the times of two counters."""
SCHEMA: Final = (
    "date date, hour int, counter long, values array<float>, seconds array<int>, over_s long, busy_s long, used_s long,"
    " max double, most_window double, limit double, last_ms long"
)


def readings(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Make the table of the rows of ``sql/readings.sql``, with all rows of a counter: for ``mapInArrow``."""
    if not (found := [batch for batch in batches if batch.num_rows]):
        return
    rows = pa.Table.from_batches(found)
    columns = {name: rows[name].to_numpy() for name in rows.column_names if name != "limit"}
    at, window, used = columns["at_s"], columns["window_s"], columns["used"]

    # A row is a change when its use enters, one when it leaves, and one by nothing at an hour's end between them.
    of_row = np.arange(len(rows))
    hour_end = (at // _HOUR_S + 1) * _HOUR_S
    split = np.flatnonzero(at + window > hour_end)
    source = np.concatenate([of_row, of_row, split])
    when = np.concatenate([at, at + window, hour_end[split]])
    change = np.concatenate([used, -used, np.zeros(len(split), np.int64)])
    limit = np.full(len(source), np.nan)
    limit[: len(rows)] = rows["limit"].to_numpy(zero_copy_only=False)
    counter = columns["counter"][source]
    order = np.lexsort((np.nan_to_num(limit, nan=-1), when, counter))
    source, when, change, limit, counter = (each[order] for each in (source, when, change, limit, counter))

    begins = np.diff(counter, prepend=counter[0] - 1) != 0
    first = np.maximum.accumulate(np.where(begins, np.arange(len(when)), 0))
    """[change] the first change of its counter."""
    window, factor = window[source], columns["per_used"][source]
    sums, per_second = np.zeros(len(when), np.int64), np.zeros(len(when))
    for length in np.unique(window):
        total = np.append(0, np.cumsum(np.where(window == length, change, 0)))
        sums += total[1:] - total[first]
        per_second += (total[1:] - total[first]) / length
    known = np.maximum.accumulate(np.where(begins | ~np.isnan(limit), np.arange(len(when)), 0))
    number = np.cumsum(begins)
    used_until = np.where(change > 0, when + columns["interval_s"][source], 0) + number * _FAR
    used_until = np.maximum.accumulate(used_until) - number * _FAR
    lasts = np.where(np.append(begins[1:], True), 0, np.append(np.diff(when), 0))

    # A sum of use is exact, and one of quotients is not: it is taken only where windows differ.
    most, limit = sums * factor, limit[known]
    allowed = np.where(limit > 0, limit, np.nan) * window
    evened = per_second * window * factor
    share = np.where(np.abs(most - evened) < allowed * 1e-9, most, evened) / allowed
    steps = pa.table(
        {
            "counter": counter,
            "hour": when // _HOUR_S,
            "seconds": lasts,
            "over": np.where(share > 1, lasts, 0),
            "used": np.clip(used_until - when, 0, lasts),
            "share": pa.array(share, from_pandas=True),
            "most": most,
            "limit": pa.array(limit, from_pandas=True),
            "last": when,
        }
    )
    yield _by_hour(steps.filter(pa.array((sums > 0) & (lasts > 0))))


def _rounded(share: NDArray[np.float64]) -> NDArray[np.float32]:
    """Round to 256 values an octave, and below a quarter to 1/1024."""
    level = np.exp2(np.minimum(8 - np.floor(np.log2(share)), 10))
    return np.asarray(np.maximum(np.floor(share * level + 0.5), 1) / level, np.float32)


def _by_hour(steps: pa.Table) -> pa.RecordBatch:
    """Add up the readings of each counter and hour; ``steps`` are in the order of counters, and of time."""
    counter, hour = steps["counter"].to_numpy(), steps["hour"].to_numpy()
    value = _rounded(steps["share"].to_numpy())
    begins = np.flatnonzero(np.append(True, (np.diff(counter) != 0) | (np.diff(hour) != 0))[: len(hour)])
    steps = steps.append_column("of", pa.array(np.searchsorted(begins, np.arange(len(hour)), "right") - 1))
    steps = steps.append_column("value", pa.array(value, from_pandas=True))
    totals: list[Any] = [("over", "sum"), ("seconds", "sum"), ("used", "sum"), ("share", "max"), ("most", "max")]
    hours = steps.group_by("of", use_threads=False).aggregate([*totals, ("limit", "last"), ("last", "max")])
    values = steps.filter(pc.is_valid(steps["value"])).group_by(["of", "value"]).aggregate([("seconds", "sum")])
    values = values.sort_by([("of", "ascending"), ("value", "ascending")])
    ends = pa.array(np.searchsorted(values["of"].to_numpy(), np.arange(len(begins) + 1)), pa.int32())
    columns = {
        "date": pa.array(hour[begins] // 24, pa.int32()).cast(pa.date32()),
        "hour": pa.array(hour[begins] % 24, pa.int32()),
        "counter": pa.array(counter[begins]),
        "values": pa.ListArray.from_arrays(ends, values["value"].combine_chunks()),
        "seconds": pa.ListArray.from_arrays(ends, values["seconds_sum"].combine_chunks().cast(pa.int32())),
        "over_s": hours["over_sum"].combine_chunks(),
        "busy_s": hours["seconds_sum"].combine_chunks(),
        "used_s": hours["used_sum"].combine_chunks(),
        "max": hours["share_max"].combine_chunks(),
        "most_window": hours["most_max"].combine_chunks(),
        "limit": hours["limit_last"].combine_chunks(),
        "last_ms": pc.multiply(hours["last_max"].combine_chunks(), 1000),
    }
    return pa.RecordBatch.from_pydict(columns)
