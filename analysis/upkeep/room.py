"""Room on this machine's disk for files while they are made. A kill leaves them, and the next run removes them.

They may be as large as an hour of the table. The kernel keeps the locks by which those in use are told.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from typing import Final

_IN_USE: Final = "sluice-compact-"


@contextmanager
def room() -> Iterator[Path]:
    """Have a directory, which goes afterwards."""
    made = Path(mkdtemp(prefix="sluice-"))
    held = os.open(made, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        # Not before it is locked is it called so: another process would take it for left.
        place = made.rename(made.with_name(f"{_IN_USE}{made.name}"))
        try:
            yield place
        finally:
            shutil.rmtree(place)
    finally:
        os.close(held)


def remove_left() -> None:
    """Remove those of this user's processes that are no more."""
    for place in Path(gettempdir()).glob(f"{_IN_USE}*"):
        try:
            found = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:  # gone since, or not ours
            continue
        try:
            if os.fstat(found).st_uid == os.getuid():
                fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(place, ignore_errors=True)
        except BlockingIOError:  # in use
            pass
        finally:
            os.close(found)
