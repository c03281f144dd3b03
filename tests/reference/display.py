"""How Kafka writes names for people: JMX quoting."""

import re

_PLAIN = re.compile(r"[A-Za-z0-9_%. \t-]*")


def jmx(name: str) -> str:
    """Quote a metric tag for an ObjectName where it needs it (Sanitizer.jmxSanitize, ObjectName.quote)."""
    if _PLAIN.fullmatch(name):
        return name
    escaped = re.sub(r'([*?"\\])', r"\\\1", name).replace("\n", "\\n")
    return f'"{escaped}"'
