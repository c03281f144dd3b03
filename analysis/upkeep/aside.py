"""What is no longer part of the table, and not yet removed: readers on a disk that had begun before still open it."""

from typing import Final

from analysis.spark.folder import Folder
from analysis.table.swaps import REPLACED, Swap, finish, unfinished

_BEING_MADE: Final = ".compacting"


class Aside:
    """A folder beside the table, named by the time ``at_s`` (Unix time) and by what else there is only once."""

    def __init__(self, usage: Folder, at_s: float, name: str) -> None:
        self._usage = usage
        self._place = f"{REPLACED}/{int(at_s):010d}-{name}"

    def take(self, partition: str) -> None:
        """Move a partition out of the table."""
        self._usage.move(partition, f"{self._place}/{partition}")

    def swap(self, swap: Swap, made: str) -> None:
        """Put the directory ``made`` in the place of batches. Killed at any moment, ``recover`` goes on."""
        written = f"{self._place}/{swap.name}"
        # A reader must not see half of it: it is written beside, and then renamed.
        self._usage.write(f"{_BEING_MADE}/{swap.name}", swap.text)
        self._usage.move(f"{_BEING_MADE}/{swap.name}", written)
        self._usage.move(made, swap.place(swap.new))
        _set_aside(self._usage, swap, self._place)
        finish(self._usage, written)
        self._usage.remove(_BEING_MADE)

    @staticmethod
    def being_made(name: str) -> str:
        """Return where a new partition is made."""
        return f"{_BEING_MADE}/{name}"


def recover(usage: Folder) -> None:
    """Finish what a run that was killed had begun; what it had not put in place goes."""
    for path, swap in unfinished(usage).items():
        if len(usage.names(f"{swap.place(swap.new)}/*.parquet")) == swap.files:
            _set_aside(usage, swap, path.rpartition("/")[0])
            finish(usage, path)
        else:
            usage.remove(swap.place(swap.new))
            usage.remove(path)
    usage.remove(_BEING_MADE)


def remove_aside(usage: Folder, before_s: float) -> int:
    """Remove for good what was set aside until then (Unix time); returns its bytes."""
    removed_bytes = 0
    for name in usage.names(f"{REPLACED}/*"):
        at_s, _, _ = name.partition("-")
        if at_s.isdecimal() and int(at_s) <= before_s:
            removed_bytes += usage.size_bytes(f"{REPLACED}/{name}")
            # First: a kill that left one of them without its note that it is done would have it under way again.
            for swap in usage.names(f"{REPLACED}/{name}/*.swap"):
                usage.remove(f"{REPLACED}/{name}/{swap}")
            usage.remove(f"{REPLACED}/{name}")
    return removed_bytes


def _set_aside(usage: Folder, swap: Swap, place: str) -> None:
    for batch in swap.old:
        partition = swap.place(batch)
        if usage.exists(partition):
            usage.move(partition, f"{place}/{partition}")
