"""The --command-config of Kafka's tools: a Java properties file, as ``java.util.Properties.load`` reads it, with
``sasl.jaas.config``: one login module and its options, as Kafka's JaasConfig reads them.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

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


# -------------------------------------------------------------------------------------------------- sasl.jaas.config


_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<comment>//[^\n]*|\#[^\n]*|/\*.*?\*/)|"(?P<quoted>(?:\\.|[^"\\])*)"|(?P<sign>[=;])|(?P<word>[^\s=;"]+))""",
    re.DOTALL,
)
_EQUALS: Final = ("=", True)
_END: Final = (";", True)
_FLAGS: Final = frozenset(("required", "requisite", "sufficient", "optional"))


class LoginModule(NamedTuple):
    """A login module's class, without its package, and its options."""

    module: str
    options: dict[str, str]


def parse_jaas(text: str) -> LoginModule:
    """Return the module and the options. Raises ValueError, which never quotes the text: it contains a password."""
    tokens = _tokens(text)
    words = [word for word, is_sign in tokens if not is_sign]
    if len(words) < 2 or words[1].lower() not in _FLAGS:
        raise ValueError("does not begin like `org.apache.kafka...LoginModule required`")
    if tokens[-1] != _END or _END in tokens[:-1]:
        raise ValueError("does not end with one `;`")
    written = tokens[2:-1]
    if len(written) % 3 or any(token != _EQUALS for token in written[1::3]):
        raise ValueError('has options that are not written as name="value"')
    names, values = written[::3], written[2::3]
    options = {name: value for (name, _), (value, _) in zip(names, values, strict=True)}
    return LoginModule(words[0].rpartition(".")[2], options)


def _tokens(text: str) -> list[tuple[str, bool]]:
    """Return the tokens as (text, is_sign); quoted text is never a sign."""
    tokens = []
    at, end = 0, len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError("has a quote that is not closed")
        at = found.end()
        if found["quoted"] is not None:
            tokens.append((re.sub(r"\\(.)", r"\1", found["quoted"], flags=re.DOTALL), False))
        elif found["comment"] is None:
            tokens.append((found["sign"] or found["word"], found["sign"] is not None))
    return tokens
