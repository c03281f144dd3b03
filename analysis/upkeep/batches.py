"""What the names of batches say: which are over, so that no run replaces them any more, and which came late.

Spark commits a batch before it begins the next. So one that a later batch of its stream followed is committed; of the
last one the checkpoint says it, if it is in the warehouse.
"""

import json
import re
from collections.abc import Iterable
from typing import Final
from uuid import uuid4

from analysis.errors import AnalysisError
from analysis.spark.folder import Folder

_COMPACTED: Final = re.compile(r"compacted-[0-9a-f]{12}-")
_CHECKPOINTS: Final = "checkpoints"


def compacted(batches: Iterable[str]) -> str:
    """Return a new name for what is made of batches of one stream: it goes on to say which, and the first of them."""
    stream, first = min(map(parts, batches))
    return f"compacted-{uuid4().hex[:12]}-{stream}-{first}"


def parts(name: str) -> tuple[str, int]:
    """Return the stream and the number of a batch; of what is not named so, no stream."""
    stream, _, number = _COMPACTED.sub("", name, count=1).rpartition("-")
    return (stream, int(number)) if number.isdecimal() else ("", -1)


def committed_of(warehouse: Folder) -> dict[str, int]:
    """Return the last committed batch of each stream whose checkpoint is in the warehouse, by the stream's id."""
    found = {}
    for checkpoint in warehouse.names(f"{_CHECKPOINTS}/*"):
        place = f"{_CHECKPOINTS}/{checkpoint}"
        try:
            stream = str(json.loads(warehouse.read(f"{place}/metadata"))["id"])
        except (AnalysisError, ValueError, TypeError, KeyError):
            continue  # an ingestion that begins just now, or nothing of ours
        numbers = [int(name) for name in warehouse.names(f"{place}/commits/*") if name.isdecimal()]
        found[stream] = max(numbers, default=-1)
    return found


class Batches:
    """What is known of all batches. ``seen``: hours (any that sort as time goes), with names of batches there."""

    def __init__(self, committed: dict[str, int], seen: Iterable[tuple[str, str]]) -> None:
        self._last = dict(committed)
        self._first: dict[str, dict[str, int]] = {}
        """By stream and hour, the number of the batch that reached it."""
        for hour, name in seen:
            stream, number = parts(name)
            if stream not in committed:
                self._last[stream] = max(self._last.get(stream, -1), number - 1)
            first = self._first.setdefault(stream, {})
            first[hour] = min(first.get(hour, number), number)

    def is_over(self, name: str) -> bool:
        """Whether no run will replace it."""
        stream, number = parts(name)
        return bool(stream) and (bool(_COMPACTED.match(name)) or number <= self._last.get(stream, -1))

    def is_late(self, name: str, hour: str) -> bool:
        """Whether a batch before it had reached a later hour."""
        stream, number = parts(name)
        return any(first < number for later, first in self._first.get(stream, {}).items() if later > hour)
