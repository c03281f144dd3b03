"""Usage records in files, one document per line. A file gets its final name once it is complete, so a reader that goes
by name never sees a partial one.
"""

import asyncio
import os
from contextlib import suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from io import FileIO
from mmap import mmap
from pathlib import Path
from typing import Final

import structlog

from config.usage import UsageFiles
from proxy.runtime.tasks import later, spawn
from proxy.usage.documents import Document
from proxy.usage.shipping import SinkError

log = structlog.get_logger("sluice.usage")

_UNFINISHED: Final = ".part"
_FINISHED: Final = ".jsonl"
_MOST_NAME: Final = 128
_FILE_MODE: Final = 0o600
_DIRECTORY_MODE: Final = 0o700
"""Usage is nobody else's business, whatever the umask."""


class FileSink:
    """Files ``<instance>-<boot>-<number>.jsonl`` in a directory.

    A file is complete at ``rotate_bytes`` or ``rotate_s``, whichever comes first. The instance's oldest files are
    deleted when all of them exceed ``keep_bytes``. Disk I/O runs in a thread.
    """

    def __init__(self, settings: UsageFiles, instance: str, boot: str) -> None:
        self._settings = settings
        self._directory = settings.directory
        self._instance = instance
        self._stem = f"{_file_name(instance)}-{boot}"
        self._number = 0
        self._file: FileIO | None = None
        self._path = settings.directory
        self._prepared = False
        self._lock = asyncio.Lock()
        self._due: asyncio.TimerHandle | None = None
        """Timer that completes the current file by its age, also when nothing more is written."""

    async def write(self, document: Document) -> None:
        """Append a line. Raises SinkError."""
        async with self._lock:
            try:
                await asyncio.to_thread(self._write, document.value)
            except OSError as error:
                raise SinkError(f"{self._directory}: {error.strerror or error}") from error
            if self._file is None:
                self._forget_age()
            elif self._due is None:
                self._due = later(
                    self._settings.rotate_s, "a usage file is due", self._complete, otherwise=self._forget_age
                )

    async def close(self) -> None:
        """Complete the current file."""
        async with self._lock:
            self._forget_age()
            try:
                await asyncio.to_thread(self._finish)
            except OSError as error:
                log.error("usage file left incomplete", path=str(self._path), error=error.strerror or str(error))

    def _complete(self) -> None:
        self._due = None
        spawn(self.close(), "complete a usage file")

    def _forget_age(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _write(self, line: bytes) -> None:
        if not self._prepared:
            self._prepare()
        if self._file is None:
            self._path = self._directory / f"{self._stem}-{self._number:06}{_UNFINISHED}"
            self._number += 1
            self._file = FileIO(self._path, "w", opener=_create)
            flock(self._file, LOCK_EX)
        at = self._file.tell()
        left = memoryview(line + b"\n")
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError:
            # A partial line, from a full disk, is cut off: the document is written again from its start.
            with suppress(OSError):
                self._file.seek(at)
                self._file.truncate()
            raise
        if at + len(line) >= self._settings.rotate_bytes:
            self._finish()

    def _prepare(self) -> None:
        """Create the directory, and complete the files of a process that was killed."""
        if not self._directory.is_dir():
            self._directory.mkdir(_DIRECTORY_MODE, parents=True, exist_ok=True)
            self._directory.chmod(_DIRECTORY_MODE)
        for left in self._directory.glob(f"{_file_name(self._instance)}-*{_UNFINISHED}"):
            _complete(left)
        self._prepared = True

    def _finish(self) -> None:
        if self._file is None:
            return
        with self._file:  # locked until it is renamed
            self._file = None
            self._path.rename(self._path.with_suffix(_FINISHED))
        self._remove_oldest()

    def _remove_oldest(self) -> None:
        files = [
            (status.st_mtime, status.st_size, entry.path)
            for entry in os.scandir(self._directory)
            if entry.name.startswith(f"{_file_name(self._instance)}-") and entry.name.endswith(_FINISHED)
            for status in (entry.stat(),)
        ]
        kept_bytes = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if kept_bytes <= self._settings.keep_bytes:
                break
            kept_bytes -= size
            Path(path).unlink(missing_ok=True)
            log.warning("oldest usage file removed", path=path, keep_bytes=self._settings.keep_bytes)


def _create(path: str, flags: int) -> int:
    """Create a file that only its owner can read and write, from the first moment on, whatever the umask."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, _FILE_MODE)
    os.fchmod(descriptor, _FILE_MODE)
    return descriptor


def _complete(left: Path) -> None:
    """Complete a file that no process writes any more, without the partial line that a kill may have left."""
    with left.open("r+b") as file:
        try:
            flock(file, LOCK_EX | LOCK_NB)
        except OSError:
            return  # a process that is still stopping has it
        if os.fstat(file.fileno()).st_size:
            with mmap(file.fileno(), 0) as content:
                whole = content.rfind(b"\n") + 1
            file.truncate(whole)
    left.rename(left.with_suffix(_FINISHED))


def _file_name(instance: str) -> str:
    """Return the begin of the names of an instance's files.

    Spark reads no files that begin with ``_`` or ``.``, and none with other letters where Java runs in the C locale.
    """
    name = "".join(map(_in_file_name, instance))[:_MOST_NAME]
    return name if name[:1].isalnum() else f"instance{name}"


def _in_file_name(character: str) -> str:
    if character.isascii():
        return character if character.isalnum() or character in "._" else "_"
    return f"_{ord(character):x}"
