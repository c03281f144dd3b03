"""A document and where it stood: what every source gives."""

from typing import Final

import pyarrow as pa
from pyspark.sql import Row

PLACE: Final = ("topic", "partition", "offset", "file", "line")
KEPT_BYTES: Final = 2**16
"""Of what is no document: the rest of it is let go."""
SOURCE: Final = pa.schema(
    [
        *(("value", pa.binary()), ("size", pa.int64()), ("stamped_ms", pa.int64()), ("fault", pa.string())),
        *(("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())),
        *(("file", pa.string()), ("line", pa.int64())),
    ]
)
"""``value`` is the text of a document, or the first KEPT_BYTES of one that is too large: ``size`` has its whole length.

``fault``: why the source has no document there. ``stamped_ms``: when a broker took it in by its own clock, if that is
known. Of a topic ``file`` and ``line`` (from 1) are null, of a file the others.
"""


def where(document: Row) -> str:
    """Say where a document stood."""
    if document.topic is None:
        return str(document.file) if document.line is None else f"{document.file}, line {document.line}"
    return f"topic {document.topic}, partition {document.partition}, offset {document.offset}"
