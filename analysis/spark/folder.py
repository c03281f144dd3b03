"""Files on any file system that Hadoop knows (local, HDFS, object stores), through the driver's JVM."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from analysis.errors import AnalysisError

_IF_ABSENT: Final = "fs.option.create.conditional.overwrite"
"""Hadoop's createFile option for object stores, which create a file when it is closed and not when it is opened."""
_IS_THERE: Final = ("FileAlreadyExistsException", "RemoteFileChangedException")


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """A file or a directory in a folder."""

    path: str
    """Relative to the folder."""
    size_bytes: int
    """0 for a directory."""
    modified_s: float
    """Unix time; for a directory on an object store, the time of the request."""


class Folder:
    """A directory, by its path or URI. All methods raise AnalysisError if the file system refuses."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        context: Any = spark.sparkContext
        self._jvm = context._jvm  # noqa: SLF001  the only way to Hadoop's file systems
        self._uri = uri
        with self._said():
            self._path = self._jvm.org.apache.hadoop.fs.Path(uri)
            self._files = self._path.getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001

    @property
    def is_on_disk(self) -> bool:
        """Whether it is a local directory, or mounted on all machines."""
        return str(self._files.getScheme()) == "file"

    def exists(self, name: str = "") -> bool:
        """Whether the directory, or a file in it, exists."""
        with self._said():
            return bool(self._files.exists(self._at(name)))

    def names(self, pattern: str) -> list[str]:
        """Return the sorted names that match a glob like ``date=*``; for ``a/*`` the last parts."""
        with self._said():
            return sorted(status.getPath().getName() for status in self._files.globStatus(self._at(pattern)) or ())

    def entries(self, pattern: str) -> list[FolderEntry]:
        """Return the entries that match a glob, sorted by path."""
        with self._said():
            root = str(self._files.makeQualified(self._path).toUri().getPath()).rstrip("/")
            found = self._files.globStatus(self._at(pattern)) or ()
            return sorted((_entry(each, root) for each in found), key=lambda entry: entry.path)

    def size_bytes(self, name: str) -> int:
        """Return the size of a file, or of all files below a directory."""
        with self._said():
            return int(self._files.getContentSummary(self._at(name)).getLength())

    def read(self, name: str) -> str:
        with self._said():
            stream = self._files.open(self._at(name))
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()

    def write(self, name: str, content: str | bytes) -> None:
        """Write or replace a file, and create its directories; text as UTF-8."""
        with NamedTemporaryFile() as local:  # by the disk, three times as fast as through py4j
            local.write(content.encode() if isinstance(content, str) else content)
            local.flush()
            self.put(Path(local.name), name)

    def create(self, name: str, content: str) -> bool:
        """Create a small file; return False if it exists. Only one of several concurrent callers succeeds.

        S3 needs a store with ``If-None-Match``, and the default of ``fs.s3a.create.conditional.enabled``.
        """
        if self.is_on_disk:  # not by Hadoop, which would write a checksum file that ``write`` does not update
            try:
                with self.on_disk(name).open("x", encoding="utf-8") as file:
                    file.write(content)
            except FileExistsError:
                return False
            return True
        with self._said():
            try:
                stream = self._new(self._at(name))
                try:
                    stream.write(bytearray(content.encode()))
                finally:
                    stream.close()
            except Py4JJavaError as error:
                if str(error.java_exception.getClass().getSimpleName()) in _IS_THERE:
                    return False
                raise
            return True

    def _new(self, path: Any) -> Any:
        """Open a new file; fails if it exists."""
        if self._files.hasPathCapability(path, _IF_ABSENT):
            return self._files.createFile(path).recursive().must(_IF_ABSENT, "true").build()
        return self._files.create(path, False)

    def put(self, content: Path, name: str) -> None:
        """Copy a local file to it, replacing the one there, and create its directories."""
        with self._said():
            here = self._jvm.org.apache.hadoop.fs.Path("file", None, str(content))
            self._files.copyFromLocalFile(False, True, here, self._at(name))

    def on_disk(self, name: str) -> Path:
        """Return a file's local path, if the folder ``is_on_disk``."""
        return Path(str(self._files.makeQualified(self._at(name)).toUri().getPath()))

    def move(self, name: str, to: str) -> None:
        """Move a directory in it, replacing the one there, and create its parents."""
        with self._said():
            self._files.delete(self._at(to), True)
            self._files.mkdirs(self._at(to).getParent())
            moved = self._files.rename(self._at(name), self._at(to))
        if not moved:
            raise AnalysisError(f"{self._uri}: {name} cannot be renamed to {to}")

    def remove(self, name: str) -> None:
        """Remove a file, or a directory with its contents."""
        with self._said():
            self._files.delete(self._at(name), True)

    def _at(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._path, name) if name else self._path

    @contextmanager
    def _said(self) -> Iterator[None]:
        try:
            yield
        except Py4JJavaError as error:
            lines = str(
                error.java_exception.getMessage() or error.java_exception.getClass().getSimpleName()
            ).splitlines()
            raise AnalysisError(f"{self._uri}: {lines[0]}") from error


def _entry(status: Any, root: str) -> FolderEntry:
    path = str(status.getPath().toUri().getPath()).removeprefix(f"{root}/")
    size_bytes = 0 if status.isDirectory() else int(status.getLen())
    return FolderEntry(path, size_bytes, status.getModificationTime() / 1000)
