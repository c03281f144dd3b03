"""A document and where it stood: what every source gives."""

from typing import Final

from pyspark.sql import Row

PLACE: Final = ("topic", "partition", "offset", "file")
SOURCE: Final = "value string, topic string, partition int, offset long, file string"
"""``value`` is the text of a document; of a topic's documents ``file`` is null, of a file's all else is."""


def where(document: Row) -> str:
    """Say where a document stood."""
    if document.topic is None:
        return str(document.file)
    return f"topic {document.topic}, partition {document.partition}, offset {document.offset}"
