"""One ``ingest`` at a time for a checkpoint. The kernel keeps these locks, so a kill leaves none behind.

On file systems of other machines there are none: there Spark itself notices a second writer of a checkpoint, later.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from analysis.errors import AnalysisError, RunError

_LOCK: Final = ".lock"


@contextmanager
def held(checkpoint: str) -> Iterator[None]:
    """Hold a checkpoint, by its path or URI. Raises RunError where another process does."""
    file = _open(checkpoint)
    if file is None:
        yield
        return
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = os.pread(file, 20, 0).decode(errors="replace").strip()
            raise RunError(
                f"another ingest (process {other or 'unknown'}) is at work on checkpoint {checkpoint}: "
                "end it first, or give this one a --checkpoint of its own if it reads another source"
            ) from None
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(file)


class Company:
    """Those that write to a warehouse at a time, each the documents of its own source."""

    def __init__(self, warehouse: str) -> None:
        self._file = _open(warehouse)
        self._lock(fcntl.LOCK_SH)

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Keep others from coming, if there are none yet: what killed ones left may go then, and nothing else."""
        yield self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._lock(fcntl.LOCK_SH)

    def _lock(self, how: int) -> bool:
        if self._file is not None:
            try:
                fcntl.flock(self._file, how)
            except BlockingIOError:
                return False
        return True


def _open(directory: str) -> int | None:
    """Open the lock of a directory, which is made; None: it is on no disk of this machine."""
    path = on_disk(directory)
    if path is None:
        return None
    try:
        path.mkdir(parents=True, exist_ok=True)
        return os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise AnalysisError(f"{directory}: {str(error.strerror).lower()}: ingest must be able to write there") from None


def on_disk(directory: str) -> Path | None:
    """Return the path of a directory that is on a disk of this machine, by its path or URI."""
    split = urlsplit(directory)
    if split.scheme not in {"", "file"}:
        return None
    return Path(unquote(split.path) if split.scheme else directory)
