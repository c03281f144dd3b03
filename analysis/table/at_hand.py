"""Periods of a few small files: found and brought to this process without Spark, whose work for a table is then more
than that of reading all rows once more.
"""

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa

from analysis.spark.folder import Entry, Folder
from analysis.table.scan import PATH, rows_of
from analysis.table.swaps import Swap, consistently, replaced

FEW_FILES: Final = 500
FEW_BYTES: Final = 10_000_000
FEW_ROWS: Final = 50_000
"""Most of the figures of a client are summed by Spark without Java made for it: 50,000 clients take it 10 s."""


_PATHS: Final = pa.schema([(PATH, pa.string())])
_CONTENTS: Final = pa.schema([(PATH, pa.string()), ("content", pa.binary())])


def files(usage: Folder, dates: Sequence[str], begin: datetime | None, end: datetime | None) -> pa.Table | None:
    """Return the files of the hours of a period as ``UsageRows.at_hand`` has them; None: they are not few.

    ``dates`` (``date=YYYY-MM-DD``) are those stored that it touches.
    """
    hours = [f"{date}/{hour}" for date in dates for hour in usage.names(f"{date}/hour=*")]
    first, last = ("" if each is None else f"{each.astimezone(UTC):date=%Y-%m-%d/hour=%H}" for each in (begin, end))
    meant = [hour for hour in hours if hour >= first and (not last or hour <= last)]
    if len(meant) > FEW_FILES:
        return None

    def without_old(found: _Listed, swaps: Sequence[Swap]) -> _Listed | None:
        return _without_old(found, [swap for swap in swaps if swap.hour_place in meant])

    found = consistently(usage, lambda: _listed(usage, meant), without_old)
    if not found.are_few:
        return None
    paths = [usage.uri_of(entry.path) for entry in found.entries]
    if usage.is_on_disk:
        table = pa.table([paths], schema=_PATHS)
    else:
        table = pa.table([paths, list(_contents(usage, found.entries))], schema=_CONTENTS)
    return table if rows_of(table) <= FEW_ROWS else None


@dataclass(frozen=True, slots=True)
class _Listed:
    entries: list[Entry]
    are_few: bool


def _listed(usage: Folder, hours: Sequence[str]) -> _Listed:
    """List hour by hour, and stop when there are too many: a warehouse may be large."""
    entries: list[Entry] = []
    for hour in hours:
        entries += usage.entries(f"{hour}/batch=*/*.parquet")
        if len(entries) > FEW_FILES or sum(entry.size_bytes for entry in entries) > FEW_BYTES:
            return _Listed([], are_few=False)
    return _Listed(entries, are_few=True)


def _without_old(listed: _Listed, swaps: Sequence[Swap]) -> _Listed | None:
    if not listed.are_few:
        return listed
    entries = listed.entries
    for swap in swaps:
        there = Counter(batch for entry in entries for hour, batch in [_place(entry)] if hour == swap.hour_place)
        if (old := replaced(swap, there)) is None:
            return None
        gone = {swap.place(batch) for batch in old}
        entries = [entry for entry in entries if entry.path.rpartition("/")[0] not in gone]
    return _Listed(entries, listed.are_few)


def _place(entry: Entry) -> tuple[str, str]:
    """Return the directory of the hour that a file is in, and its batch."""
    hour, _, batch = entry.path.rpartition("/")[0].rpartition("/")
    return hour, batch.removeprefix("batch=")


def _contents(usage: Folder, entries: Sequence[Entry]) -> Iterator[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        for entry in entries:
            here = Path(folder, "file")
            usage.fetch(entry.path, here)
            yield here.read_bytes()
