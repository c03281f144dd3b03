"""Texts and where they stood: what both sources give, a topic and files."""

from typing import Any, Final

import pyarrow as pa

KEPT_BYTES: Final = 2**16
"""Of what is no document: the rest of it is let go."""
PLACE: Final = ("topic", "partition", "offset", "file", "line")
SOURCE: Final = pa.schema(
    [
        *(("value", pa.binary()), ("size", pa.int64()), ("stamped_ms", pa.int64())),
        *(("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())),
        *(("file", pa.string()), ("line", pa.int64())),
    ]
)
"""``value`` is a text, or the first KEPT_BYTES of one that is too large: ``size`` has its whole length.

``stamped_ms``: when a broker took it in by its own clock, if that is known. Of a topic ``file`` and ``line`` (from 1)
are null, of a file the others.
"""


def where(place: Any) -> str:
    """Say where a text stood."""
    if place["topic"] is None:
        return f"{place['file']}, line {place['line']}"
    return f"topic {place['topic']}, partition {place['partition']}, offset {place['offset']}"
