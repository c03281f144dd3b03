"""The source of files: ``*.jsonl`` in a directory or below it, one document a line, each complete when found.

Spark finds each file once. Python workers read files on a disk line by line, with a bound for lines; files from
elsewhere they get as a whole from Spark.
"""

import io
from collections.abc import Iterator
from typing import BinaryIO, Final

import pyarrow as pa
from pyspark.sql import SparkSession

from analysis.errors import AnalysisError
from analysis.ingest.source import KEPT_BYTES, Origin, Source, Text
from analysis.schema import MOST_DOCUMENT_BYTES
from analysis.spark.folder import Folder
from analysis.spark.progress import to_stderr

MOST_FILE_BYTES: Final = 512 * 2**20
"""Eight times the size at which the proxy begins another file. A larger file that is not on a disk ends the run."""
_ON_DISK: Final = "file:"
_FILES: Final = "path string, modificationTime timestamp, length long, content binary"
_BYTES_PER_DOCUMENT: Final = 90_000
"""The size of a document of a thousand rows."""
_PIECE_BYTES: Final = 2**20
_NEVER: Final = "36500d"
"""Spark ignores files that are older than the newest one by more than this; late files must be read."""
_HIDDEN: Final = ("{_,.}*.jsonl", "*/{_,.}*.jsonl", "{_,.}*/*.jsonl")
"""Files that Spark's file sources ignore, in the directory and those in it."""
_FOUND: Final = {"pathGlobFilter": "*.jsonl", "recursiveFileLookup": "true"}


def source(spark: SparkSession, directory: str, documents: int) -> Source:
    """Return a stream with about ``documents`` per batch. Raises AnalysisError if there is no directory."""
    folder = Folder(spark, directory)
    if not folder.exists():
        raise AnalysisError(f"{directory}: there is no such directory; --files is usage.files.directory of sluice.yaml")
    if hidden := [entry.path for pattern in _HIDDEN for entry in folder.entries(pattern)]:
        many = f" and {len(hidden) - 1} more" if len(hidden) > 1 else ""
        to_stderr(f"not read: {directory}/{hidden[0]}{many}: rename what begins with _ or ., Spark ignores such files")
    limits = {"maxFileAge": _NEVER, "maxBytesPerTrigger": str(documents * _BYTES_PER_DOCUMENT)}
    found = spark.readStream.format("binaryFile").schema(_FILES).options(**_FOUND, **limits).load(directory)
    if not folder.is_on_disk:
        spark.conf.set("spark.sql.sources.binaryFile.maxLength", MOST_FILE_BYTES)
        found = found.select("path", "content")
    else:
        found = found.select("path")
    return Source(found, _texts)


def lines(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Yield the lines of a file without their ends, and their lengths; of a long one the first KEPT_BYTES."""
    while line := file.readline(MOST_DOCUMENT_BYTES + 1):
        kept, size = line, len(line)
        if size > MOST_DOCUMENT_BYTES and not line.endswith(b"\n"):
            kept = line[:KEPT_BYTES]
            while not line.endswith(b"\n") and (line := file.readline(_PIECE_BYTES)):
                size += len(line)
        yield kept.removesuffix(b"\n"), size - line.endswith(b"\n")


def _texts(files: pa.RecordBatch) -> Iterator[Text]:
    for path, *content in zip(*(column.to_pylist() for column in files.columns), strict=True):
        try:
            if content:
                file: BinaryIO = io.BytesIO(content[0])
            else:
                file = open(path.removeprefix(_ON_DISK), "rb", buffering=_PIECE_BYTES)  # noqa: SIM115, PTH123  closed below
            with file:
                for number, (value, size) in enumerate(lines(file), 1):
                    yield Text(value, size, Origin(file=path, line=number))
        except OSError as error:
            raise AnalysisError(f"{path}: {error.strerror or error}") from error
