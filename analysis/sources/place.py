"""A document and where it stood: what every source gives."""

from typing import Final

from pyspark.sql import Row

PLACE: Final = ("topic", "partition", "offset", "file", "line")
SOURCE: Final = "value string, topic string, partition int, offset long, file string"
"""``value`` is the text of a document; ``file`` is null where it is of a topic, ``topic`` and ``partition`` else.

Of a file ``offset`` is where the block of lines begins that it was read with: from there ``line`` is counted.
"""


def where(document: Row) -> str:
    """Say where a document stood."""
    if document.topic is None:
        return str(document.file) if document.line is None else f"{document.file}, line {document.line}"
    return f"topic {document.topic}, partition {document.partition}, offset {document.offset}"
