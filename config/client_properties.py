"""Java properties files, parsed as ``java.util.Properties.load`` does: the --command-config of Kafka's tools."""

import re
from collections.abc import Iterator
from typing import Final

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANK: Final = " \t\f"
_KEY: Final = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE: Final = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)


def parse_properties(text: str) -> dict[str, str]:
    """Return the keys and values of a file; of a repeated key the last value counts, as in Java."""
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        key = _KEY.match(line)
        end = key.end() if key else 0
        separator = _SEPARATOR.match(line, end)
        properties[_unescape(line[:end])] = _unescape(line[separator.end() if separator else end :])
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    """Yield the lines without comments, with continuation lines joined."""
    going_on = ""
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(_BLANK)
        if not going_on and (not line or line[0] in "#!"):
            continue
        line = going_on + line
        if (len(line) - len(line.rstrip("\\"))) % 2:  # an odd number of backslashes: the last one continues the line
            going_on = line[:-1]
            continue
        going_on = ""
        yield line
    if going_on:
        yield going_on


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else _ESCAPES.get(found[2], found[2]), text)
