"""Names as Kafka writes them into ZooKeeper paths and ``user`` metric tags (Kafka: Sanitizer)."""

import re
from urllib.parse import quote, unquote_to_bytes

_MALFORMED = re.compile(r"%(?![0-9A-Fa-f]{2})")


def sanitise(name: str) -> str:
    """Percent-encode all but ``A-Z a-z 0-9 . - _``, per UTF-8 byte; a lone surrogate becomes ``%3F``, as in Java."""
    return quote(name.encode("utf-8", "replace"), safe="-._").replace("~", "%7E")


def desanitise(text: str) -> str:
    """Undo ``sanitise``; ``+`` is a space, as for Java's URLDecoder. Raises ValueError for a malformed ``%``."""
    malformed = _MALFORMED.search(text)
    if malformed:
        raise ValueError(f"malformed % escape at position {malformed.start()} of {text!a}")
    return unquote_to_bytes(text.replace("+", " ")).decode("utf-8", "replace")
