"""Files that change: written in place, renamed over, or behind a swapped symlink (Kubernetes); and this program's own.

``FileWatch`` polls a file's identity four times a second, which follows symlinks and works on any file system;
docs/decisions/0005 explains why not inotify.
"""

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from proxy.runtime.tasks import every

POLL_S = 0.25
_DIRECTORY_MODE: Final = 0o700

_Identity = tuple[int, int, int, int, int] | None


class FileWatch:
    """Calls ``reload`` once for each change of a file behind ``paths``."""

    def __init__(self, paths: Sequence[Path], reload: Callable[[], Awaitable[None]]) -> None:
        self._paths = paths
        self._reload = reload
        self._seen = self._identities()

    def run(self, name: str) -> None:
        every(POLL_S, self.check, name)

    async def check(self) -> None:
        """Check once. Files that are still being written are left to the next check."""
        identities = self._identities()
        if identities == self._seen:
            return
        await asyncio.sleep(POLL_S / 5)
        if identities == self._identities():
            self._seen = identities
            await self._reload()

    def _identities(self) -> list[_Identity]:
        return [_identity(path) for path in self._paths]


def _identity(path: Path) -> _Identity:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def write_atomically(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a file atomically, and its folder if it is not there. Raises OSError."""
    path.parent.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
