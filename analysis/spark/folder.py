"""Files wherever Hadoop can reach them: local, HDFS, object stores. All through the driver's JVM."""

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
"""Of object stores, which make a file when it is closed: all others look when it is opened (Hadoop's createFile)."""
_IS_THERE: Final = ("FileAlreadyExistsException", "RemoteFileChangedException")


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or a directory in a folder."""

    path: str
    """From the folder on."""
    size_bytes: int
    """0 of a directory."""
    modified_s: float
    """Unix time; of a directory on an object store, when it was asked for."""


class Folder:
    """A directory, by its path or URI. All methods raise AnalysisError for what its file system will not do."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        context: Any = spark.sparkContext
        self._jvm = context._jvm  # noqa: SLF001  the only way to Hadoop's file systems
        self._uri = uri
        with self._said():
            self._path = self._jvm.org.apache.hadoop.fs.Path(uri)
            self._files = self._path.getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001

    @property
    def is_on_disk(self) -> bool:
        """Whether it is a directory of this machine, or of one that all machines have mounted."""
        return str(self._files.getScheme()) == "file"

    def exists(self, name: str = "") -> bool:
        """Whether the directory, or something in it, is there."""
        with self._said():
            return bool(self._files.exists(self._at(name)))

    def names(self, pattern: str) -> list[str]:
        """Return the names of what is in it, sorted, by a glob: ``date=*``; of ``a/*`` the last parts."""
        with self._said():
            return sorted(status.getPath().getName() for status in self._files.globStatus(self._at(pattern)) or ())

    def entries(self, pattern: str) -> list[Entry]:
        """Return what is in it, by a glob, sorted by path."""
        with self._said():
            root = str(self._files.makeQualified(self._path).toUri().getPath()).rstrip("/")
            found = self._files.globStatus(self._at(pattern)) or ()
            return sorted((_entry(each, root) for each in found), key=lambda entry: entry.path)

    def size_bytes(self, name: str) -> int:
        """Return how much a directory, or a file, holds with all below it."""
        with self._said():
            return int(self._files.getContentSummary(self._at(name)).getLength())

    def read(self, name: str) -> str:
        """Return a small file's text."""
        with self._said():
            stream = self._files.open(self._at(name))
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()

    def write(self, name: str, content: str | bytes) -> None:
        """Write a file, over one that is there, with the directories that it is in; text as UTF-8."""
        with NamedTemporaryFile() as local:  # JVM and Python share a disk; through py4j it takes thrice
            local.write(content.encode() if isinstance(content, str) else content)
            local.flush()
            self.put(Path(local.name), name)

    def create(self, name: str, content: str) -> bool:
        """Write a small file that is not there yet; False where it is. Of several who want to, one does.

        In S3 that needs a store that knows ``If-None-Match``, and ``fs.s3a.create.conditional.enabled`` as it is.
        """
        if self.is_on_disk:  # not by Hadoop, which would leave a sum beside it that ``write`` does not renew
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
        """Return a stream that makes a file, if there is none."""
        if self._files.hasPathCapability(path, _IF_ABSENT):
            return self._files.createFile(path).recursive().must(_IF_ABSENT, "true").build()
        return self._files.create(path, False)

    def put(self, content: Path, name: str) -> None:
        """Copy a file of this machine to it, over one that is there, with the directories that it is in."""
        with self._said():
            here = self._jvm.org.apache.hadoop.fs.Path("file", None, str(content))
            self._files.copyFromLocalFile(False, True, here, self._at(name))

    def on_disk(self, name: str) -> Path:
        """Return where a file is on this machine's disk, if the folder ``is_on_disk``."""
        return Path(str(self._files.makeQualified(self._at(name)).toUri().getPath()))

    def move(self, name: str, to: str) -> None:
        """Give a directory in it another place, whose parents are made; what is there goes."""
        with self._said():
            self._files.delete(self._at(to), True)
            self._files.mkdirs(self._at(to).getParent())
            moved = self._files.rename(self._at(name), self._at(to))
        if not moved:
            raise AnalysisError(f"{self._uri}: {name} cannot be renamed to {to}")

    def remove(self, name: str) -> None:
        """Remove a directory in it, with all that it holds."""
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


def _entry(status: Any, root: str) -> Entry:
    path = str(status.getPath().toUri().getPath()).removeprefix(f"{root}/")
    size_bytes = 0 if status.isDirectory() else int(status.getLen())
    return Entry(path, size_bytes, status.getModificationTime() / 1000)
