"""Paths to a claim in a token, in the syntax of brokers' settings."""

import re
from typing import Final

from config.problems import InvalidValue

_QUOTED: Final = r"\[ *'(?P<quoted>[^'\]]+)' *\]"
_PLAIN: Final = r"\[ *(?P<plain>[^'\]\s][^'\]]*?) *\]"
_STEP: Final = re.compile(rf" *(?:{_QUOTED}|{_PLAIN}|(?P<bare>[^.\[\]'\s]+)) *")


def checked_claim(text: str) -> str:
    """Return ``text`` if it is a valid path."""
    parse_claim(text)
    return str(text)


def parse_claim(text: str) -> tuple[str, ...]:
    """Parse a path to a claim. A plain name is a top-level claim, dots included; a path that begins with a bracket
    descends, as in ``['user.info'].[id]`` (Strimzi's ``oauth.username.claim``).
    """
    text = text.strip()
    if not text:
        raise InvalidValue("is empty", "write the name of a claim")
    if not text.startswith("["):
        return (text,)
    way: list[str] = []
    at = 0
    while True:
        match = _STEP.match(text, at)
        if match is None:
            break
        way.append(match["quoted"] or match["plain"] or match["bare"])
        at = match.end()
        if at == len(text):
            return tuple(way)
        if text[at] != ".":
            break
        at += 1
    raise InvalidValue(
        f"{text!r} is not a valid path to a claim from {text[at:]!r} on", "write it as in ['user.info'].['id']"
    )
