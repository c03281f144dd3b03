"""Which batches of ingestion are over: their stream's checkpoint has them, so that no run replaces them any more.

Spark commits a batch before it begins the next. So one that a later batch of its stream followed is committed; of the
last one the checkpoint says it, if it is in the warehouse.
"""

import json
from collections.abc import Iterable
from typing import Final

from analysis.errors import AnalysisError
from analysis.spark.folder import Folder

COMPACTED: Final = "compacted-"
"""How the names of batches begin that no ingestion wrote."""
_CHECKPOINTS: Final = "checkpoints"


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


class Over:
    """Tells batches that are over. ``seen``: names of batches in the table; the more, the more is known."""

    def __init__(self, committed: dict[str, int], seen: Iterable[str]) -> None:
        self._last = dict(committed)
        known: dict[str, int] = {}
        for name in seen:
            stream, number = _parts(name)
            if stream and stream not in committed:
                known[stream] = max(known.get(stream, -1), number)
        self._last |= {stream: number - 1 for stream, number in known.items()}

    def __contains__(self, name: str) -> bool:
        if name.startswith(COMPACTED):
            return True
        stream, number = _parts(name)
        return bool(stream) and number <= self._last.get(stream, -1)


def _parts(name: str) -> tuple[str, int]:
    """Return the stream and the number of a batch; of what has another name, no stream."""
    stream, _, number = name.rpartition("-")
    if name.startswith(COMPACTED) or not number.isdecimal():
        return "", -1
    return stream, int(number)
