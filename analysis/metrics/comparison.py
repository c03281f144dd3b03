"""A period against another one, as a rule the one before it: who came and went, what use and headroom have changed.

Sums stand as they were recorded; whoever shows them scales those of a period of another length, and says of how much
of either nothing was recorded (``unrecorded_s``).
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.metrics.talkers import CLIENT, muted_ms
from analysis.table.arrays import Ints, added, ints, summed, times_ms, with_columns
from analysis.table.hashes import places
from analysis.table.reading import Keeping, Making, adding
from analysis.table.schema import TEXT

SUMS: Final = ("bytes_in", "bytes_out", "requests", "muted_ms")
LIMIT: Final = ("cluster", "broker", "kind", "rule", "unit_user", "unit_client_id")
"""A limit on a broker, whichever proxy instances enforce it."""
QUOTA: Final = ("cluster", "kind", "rule")
ENDS: Final = ("least_limit", "most_limit")
KEPT: Final = "minutes"
BOTH: Final = "both"
NEW: Final = "new"
GONE: Final = "gone"
BEFORE: Final = "_before"
_LEAST_GAP_MINUTES: Final = 5
"""Without a record: nobody may have been active for less."""
_MINUTE_MS: Final = 60_000
_MINUTES: Final = pa.schema([("minute", pa.int64()), ("rows", pa.int64())])


def clients(now: pa.Table, before: pa.Table) -> pa.Table:
    """Return CLIENT, ``seen`` (BOTH, NEW or GONE), SUMS, and SUMS with BEFORE; both from ``talkers.talkers``.
    Who did nothing in one of the periods has zeros there.
    """

    def used(talkers: pa.Table) -> pa.Table:
        named = talkers.filter(talkers["user"].is_valid())
        return named.select([*CLIENT, *SUMS[:-1]]).append_column(SUMS[-1], pa.array(muted_ms(named)))

    found = _joined(used(now), used(before), CLIENT, SUMS)
    for name in (name + end for name in SUMS for end in ("", BEFORE)):
        found = found.set_column(found.schema.get_field_index(name), name, pc.fill_null(found[name], 0))
    return found


def limits(now: pa.Table, before: pa.Table) -> pa.Table:
    """Return LIMIT, ``seen``, ``p99`` (of the instance that has most) and ``limit``, and these with BEFORE.

    Both are from ``headroom.of_period``. Of one that was not used there is none (null).
    """
    used = [
        added(each.filter(pc.greater(each["max"], 0)), LIMIT, {"p99": "max", "limit": "max"}) for each in (now, before)
    ]
    return _joined(used[0], used[1], LIMIT, ("p99", "limit"))


def quotas(now: pa.Table, before: pa.Table) -> pa.Table:
    """Return QUOTA, ``seen``, ``least_limit`` and ``most_limit``, and these with BEFORE: the last of each counter."""
    ends = {"least_limit": "min", "most_limit": "max"}
    used = [added(with_columns(each, dict.fromkeys(ENDS, each["limit"])), QUOTA, ends) for each in (now, before)]
    return _joined(used[0], used[1], QUOTA, ENDS)


def making() -> Making:
    """Return the minutes of which there are records: for ``unrecorded_s``."""
    return Making(KEPT, keeping(), iter, _MINUTES)


def unrecorded_s(minutes: pa.Table, begin: datetime, end: datetime) -> int:
    """Return for how long nothing was recorded between two times, in gaps of some minutes each."""
    return gaps_s(np.unique(ints(minutes, "minute")), begin, end)


def keeping() -> Keeping:
    """Return what is kept of rows as KEPT."""
    return Keeping(KEPT, ("time", "interval_ms"), _minutes, _MINUTES, adding(("minute",), {"rows": "sum"}))


def gaps_s(minutes: Ints, begin: datetime, end: datetime) -> int:
    """Return the same of ``minutes``, ascending, since 1970, of which there are records."""
    first, last = int(begin.timestamp()) // 60, -int(-end.timestamp() // 60)
    known = np.concatenate([[first - 1], minutes[(minutes >= first) & (minutes < last)], [last]])
    without = np.diff(known) - 1
    return int(without[without >= _LEAST_GAP_MINUTES].sum()) * 60


def _minutes(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    return summed(map(_touched, tables), ("minute",), {"rows": "sum"})


def _touched(table: pa.Table) -> pa.Table:
    """Return every minute that an interval touches; those of many minutes are few."""
    begin_ms = times_ms(table)
    first = begin_ms // _MINUTE_MS
    count = np.maximum((begin_ms + ints(table, "interval_ms") - 1) // _MINUTE_MS - first, 0) + 1
    most = int(count.max(initial=1)) + 1
    apart = (divmod(both, most) for both in np.unique(first * most + count).tolist())
    minutes = np.concatenate([np.arange(at, at + many) for at, many in apart] or [np.zeros(0, dtype=np.int64)])
    return pa.table({"minute": minutes, "rows": np.ones_like(minutes)})


def _joined(now: pa.Table, before: pa.Table, keys: Sequence[str], values: Sequence[str]) -> pa.Table:
    """Return ``keys`` of either, ``seen``, and values of both, null where there are none."""
    was = places(now, before, keys)
    new_or_both, gone = np.arange(len(now)), np.flatnonzero(places(before, now, keys) < 0)
    mine = _at(np.concatenate([new_or_both, np.full(len(gone), -1)]))
    theirs = _at(np.concatenate([was, gone]))
    names = pa.concat_tables([now.select(keys), before.select(keys).take(pa.array(gone)).cast(now.select(keys).schema)])
    seen = np.where(was < 0, NEW, BOTH).tolist() + [GONE] * len(gone)
    columns = {"seen": pa.array(seen, TEXT)}
    for name in values:
        columns |= {name: now[name].take(mine), name + BEFORE: before[name].take(theirs)}
    return with_columns(names, columns)


def _at(places: Ints) -> pa.Array:
    return pa.array(places, mask=places < 0)
