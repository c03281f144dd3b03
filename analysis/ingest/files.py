"""Files of usage records, one document a line: ``*.jsonl`` in a directory or below it, each complete when seen.

Spark finds them, once each. Python workers open what is on a disk and read it line by line, however long a line is;
from elsewhere Spark hands them whole files.
"""

import io
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as in every PySpark program
from pyspark.sql.pandas.types import from_arrow_schema

from analysis.errors import AnalysisError
from analysis.ingest.source import KEPT_BYTES, SOURCE
from analysis.schema import MOST_DOCUMENT_BYTES
from analysis.spark.folder import Folder

MOST_FILE_BYTES: Final = 512 * 2**20
"""Of a file that is not on a disk: eight times the size at which the proxy begins another one."""
_ON_DISK: Final = "file:"
_FILES: Final = "path string, modificationTime timestamp, length long, content binary"
_BYTES_PER_DOCUMENT: Final = 90_000
"""Of a document of a thousand rows."""
_DOCUMENTS_PER_BATCH: Final = 100
"""About 9 MB."""
_BYTES_PER_BATCH: Final = 2 * MOST_DOCUMENT_BYTES
_PIECE_BYTES: Final = 2**20
_NEVER: Final = "36500d"
"""Spark ignores a file that is older than the newest one by more than this; here, what comes late is read."""
_FOUND: Final = {"pathGlobFilter": "*.jsonl", "recursiveFileLookup": "true"}


def stream(spark: SparkSession, directory: str, documents: int) -> DataFrame:
    """Return documents (``source.SOURCE``), about so many a batch. Raises AnalysisError where there is no directory."""
    folder = Folder(spark, directory)
    if not folder.exists():
        raise AnalysisError(f"{directory}: there is no such directory; --files is usage.files.directory of sluice.yaml")
    limits = {"maxFileAge": _NEVER, "maxBytesPerTrigger": str(documents * _BYTES_PER_DOCUMENT)}
    found = spark.readStream.format("binaryFile").schema(_FILES).options(**_FOUND, **limits).load(directory)
    if not folder.is_on_disk:
        found = found.where(F.col("length") <= MOST_FILE_BYTES).select("path", "content")
    else:
        found = found.select("path")
    return found.mapInArrow(_documents, from_arrow_schema(SOURCE))


def passed_over(spark: SparkSession, directory: str) -> list[str]:
    """Return the files that are too large to be handed whole to a worker: none on a disk."""
    if Folder(spark, directory).is_on_disk:
        return []
    found = spark.read.format("binaryFile").options(**_FOUND).load(directory).select("path", "length")
    return [each.path for each in found.where(F.col("length") > MOST_FILE_BYTES).select("path").collect()]


def lines(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Yield the lines of a file without their ends, and how long each is: of a long one the first KEPT_BYTES."""
    while line := file.readline(MOST_DOCUMENT_BYTES + 1):
        kept, size = line, len(line)
        if size > MOST_DOCUMENT_BYTES and not line.endswith(b"\n"):
            kept = line[:KEPT_BYTES]
            while not line.endswith(b"\n") and (line := file.readline(_PIECE_BYTES)):
                size += len(line)
        yield kept.removesuffix(b"\n"), size - line.endswith(b"\n")


def _documents(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for at in range(batch.num_rows):
            path = batch.column(0)[at].as_py()
            try:
                if batch.num_columns > 1:
                    file: BinaryIO = io.BytesIO(batch.column(1)[at].as_buffer())
                else:
                    file = open(path.removeprefix(_ON_DISK), "rb", buffering=_PIECE_BYTES)  # noqa: SIM115, PTH123  closed below
                with file:
                    yield from _numbered(path, file)
            except OSError as error:
                raise AnalysisError(f"{path}: {error.strerror or error}") from error


def _numbered(path: str, file: BinaryIO) -> Iterator[pa.RecordBatch]:
    waiting: list[dict[str, Any]] = []
    held = 0
    for number, (value, size) in enumerate(lines(file), 1):
        waiting.append({"value": value, "size": size, "file": path, "line": number})
        held += len(value)
        if len(waiting) >= _DOCUMENTS_PER_BATCH or held >= _BYTES_PER_BATCH:
            yield pa.RecordBatch.from_pylist(waiting, SOURCE)
            waiting, held = [], 0
    if waiting:
        yield pa.RecordBatch.from_pylist(waiting, SOURCE)
