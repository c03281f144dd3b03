"""Files on any file system that Hadoop knows (local, HDFS, object stores), through the driver's JVM."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from analysis.errors import AnalysisError, RunError, of_worker

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
        self._gateway = context._gateway  # noqa: SLF001
        self._conf = context._jsc.hadoopConfiguration()  # noqa: SLF001
        self.uri = uri
        with self._said():
            self._path = self._jvm.org.apache.hadoop.fs.Path(uri)
            self._files = self._path.getFileSystem(self._conf)

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
            if self.is_on_disk:  # not by Hadoop, which would look for checksums that ``write`` does not write
                return self.on_disk(name).read_text(encoding="utf-8")
            stream = self._files.open(self._at(name))
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()

    def write(self, name: str, content: str | bytes) -> None:
        """Write or replace a file, in one step, and create its directories; text as UTF-8."""
        content = content.encode() if isinstance(content, str) else content
        aside = f"{name}.aside"
        with self._said():
            if self.is_on_disk:
                self.on_disk(name).parent.mkdir(parents=True, exist_ok=True)
                with self.on_disk(aside).open("wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                self.on_disk(aside).replace(self.on_disk(name))
                return
            with NamedTemporaryFile() as local:  # by the disk, three times as fast as through py4j
                local.write(content)
                local.flush()
                here = self._jvm.org.apache.hadoop.fs.Path("file", None, local.name)
                is_whole = self._files.hasPathCapability(self._path, _IF_ABSENT)
                self._files.copyFromLocalFile(False, True, here, self._at(name if is_whole else aside))
            if not is_whole:
                self._replace(aside, name)

    def _replace(self, name: str, by: str) -> None:
        """Rename a file over another one, which FileSystem.rename refuses."""
        kinds = self._jvm.org.apache.hadoop.fs.Options.Rename
        overwrite = self._gateway.new_array(kinds, 1)
        overwrite[0] = kinds.OVERWRITE
        context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(self._files.getUri(), self._conf)
        context.rename(self._files.makeQualified(self._at(name)), self._files.makeQualified(self._at(by)), overwrite)

    def create(self, name: str, content: str) -> bool:
        """Create a small file; return False if it exists. Only one of several concurrent callers succeeds.

        S3 needs a store with ``If-None-Match``, and the default of ``fs.s3a.create.conditional.enabled``.
        """
        with self._said():
            if self.is_on_disk:
                return _created(self.on_disk(name), content)
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

    def on_disk(self, name: str) -> Path:
        """Return a file's local path, if the folder ``is_on_disk``."""
        return Path(str(self._files.makeQualified(self._at(name)).toUri().getPath()))

    def location(self, name: str) -> str:
        """Return where a file is, for Arrow and for other processes: an absolute path, or a URI."""
        return str(self.on_disk(name)) if self.is_on_disk else f"{self.uri.rstrip('/')}/{name}"

    def move(self, name: str, to: str) -> None:
        """Move a directory of files, and create its parents; where a killed process has moved some files, the others.

        Object stores move one file after the other.
        """
        source, target = self._at(name), self._at(to)
        with self._said():
            pairs = [(source, target)]
            if self._files.exists(target):
                found = [status.getPath() for status in self._files.listStatus(source)]
                pairs = [(each, self._jvm.org.apache.hadoop.fs.Path(target, each.getName())) for each in found]
            self._files.mkdirs(target.getParent())
            for each, place in pairs:
                self._files.delete(place, True)
                if not self._files.rename(each, place):
                    raise AnalysisError(f"{self.uri}: {name} cannot be renamed to {to}")
            self._files.delete(source, True)

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
            said = error.java_exception.getMessage() or error.java_exception.getClass().getSimpleName()
            raise _failed(error, f"{self.uri}: {str(said).splitlines()[0]}") from error
        except OSError as error:
            raise _failed(error, f"{error.filename or self.uri}: {error.strerror or error}") from error


def _created(path: Path, content: str) -> bool:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        file = path.open("x", encoding="utf-8")
    except FileExistsError:
        return False
    try:
        with file:
            file.write(content)
    except OSError:  # on a full disk it would stay there, empty, and be taken for another program's
        path.unlink()
        raise
    return True


def _failed(error: Exception, said: str) -> AnalysisError:
    full = of_worker(error)
    return RunError(full) if full else AnalysisError(said)


def _entry(status: Any, root: str) -> FolderEntry:
    path = str(status.getPath().toUri().getPath()).removeprefix(f"{root}/")
    size_bytes = 0 if status.isDirectory() else int(status.getLen())
    return FolderEntry(path, size_bytes, status.getModificationTime() / 1000)
