"""Which files of the table came late: after another batch of their checkpoint had reached a later hour, by the names.

What was compacted goes on to say of which checkpoint it is, and the first of its batches (``upkeep.batches``).
"""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final

_BATCH: Final = re.compile(
    r"/date=(\d{4}-\d{2}-\d{2})/hour=(\d{2})/batch=(?:compacted-[0-9a-f]{12}-)?([^/]*)-(\d{1,18})/"
)


def late_files(paths: Iterable[str]) -> frozenset[str]:
    """Return those that came late, each held against those of its date and of the hour after it.

    Of a whole date it is always the same, then, whatever else is looked at.
    """
    of_dates: dict[str, list[tuple[str, str, int, str]]] = {}
    for path in paths:
        if found := _BATCH.search(path):
            date, hour, checkpoint, number = found.groups()
            batch = (checkpoint, f"{date} {hour}", int(number), path)
            of_dates.setdefault(date, []).append(batch)
            if hour == "00":
                of_dates.setdefault(_before(date), []).append(batch)
    return frozenset(
        path for date, batches in of_dates.items() for hour, path in _late(batches) if hour.startswith(date)
    )


def _late(batches: list[tuple[str, str, int, str]]) -> Iterator[tuple[str, str]]:
    """Yield hour and path of batches that came after another one, of the same checkpoint, had reached a later hour."""
    of_checkpoint: dict[str, list[tuple[int, str, str]]] = {}
    for checkpoint, hour, number, path in batches:
        of_checkpoint.setdefault(checkpoint, []).append((number, hour, path))
    for files in of_checkpoint.values():
        reached = before = ""
        last = -1
        for number, hour, path in sorted(files):
            if number != last:
                last, before = number, reached
            reached = max(reached, hour)
            if hour < before:
                yield hour, path


def _before(date: str) -> str:
    return f"{datetime.fromisoformat(date) - timedelta(days=1):%Y-%m-%d}"
