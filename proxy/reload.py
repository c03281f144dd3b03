"""Noticing that a file has another content: written in place, renamed over, or behind a swapped symlink (Kubernetes).

It asks for the file's identity four times a second, which follows every symlink and works on any file system;
docs/decisions/0005 says why not inotify.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

POLL_S = 0.25

_Identity = tuple[int, int, int, int, int] | None


class FileWatch:
    """Calls ``reload`` once whenever the file behind ``path`` is another, or says something else, than before."""

    def __init__(self, path: Path, reload: Callable[[], Awaitable[None]]) -> None:
        self._path = path
        self._reload = reload
        self._seen = self._identity()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await asyncio.sleep(POLL_S)
            await self.check()

    async def check(self) -> None:
        """Look once. A file that is still being written is left to the next look."""
        identity = self._identity()
        if identity == self._seen:
            return
        await asyncio.sleep(POLL_S / 5)
        if identity == self._identity():
            self._seen = identity
            await self._reload()

    def _identity(self) -> _Identity:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
