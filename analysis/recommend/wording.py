"""What a need is in words: of the comments of a new quota file, and of the differences from a present one."""

import re
from functools import partial
from typing import Final

from analysis.kernel.advice import write_bytes
from analysis.page.words import limit, plain
from analysis.recommend.needs import Need
from analysis.replay.recording import cluster_and_instance
from quotas.entities import Default, Group, Name, Prefix
from quotas.kinds import BYTES

_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]")
_OTHER_TYPES: Final = frozenset(("yes", "no", "true", "false", "on", "off", "null"))
"""As YAML 1.1 reads them without quotes, in any case."""


def size(need: Need) -> str:
    """Return a quota as a quota file has it."""
    return write_bytes(need.quota) if need.kind.row.unit is BYTES else f"{need.quota:.0f}"


def needs(need: Need) -> str:
    """Return what is needed, and what it is found from."""
    if not need.needed:
        return "needs less than the least quota"
    rate = _rate if need.kind.row.unit is BYTES else partial(limit, need.kind)
    instance = plain(cluster_and_instance(need.unit.instance)[1])
    where = instance if need.unit.broker < 0 else f"broker {need.unit.broker}, {instance}"
    if need.unit.ip:
        where = f"{plain(need.unit.ip)}, {instance}"
    return (
        f"needs {rate(need.needed)} ({where}); recorded "
        f"p99 {rate(need.p99)}, most {rate(need.most)} in a second and {rate(need.surge)} over the window"
    )


def trust(need: Need) -> str:
    """Return how far a need can be trusted."""
    doubt = "" if need.answer == "exact" else f" (held up while recorded: {need.answer}, sized for the most)"
    return f"confidence {need.confidence}{doubt}"


def of_caps(need: Need) -> str:
    """Say what caps meant: who was held by a cap alone needs no other quota for that."""
    if need.held_by:
        whom = "by that alone, not by a quota" if need.held_by_caps_alone else "by that among others"
        return f"; held by {plain(need.held_by)} while recorded, {whom}: a quota above it changes nothing"
    return f"; under {plain(', '.join(need.caps))} besides, which held nobody" if need.caps else ""


def entity(user: Name, client_id: Name, dimensions: tuple[str, ...] = (), ip: Name = "") -> str:
    """Return whom a quota is for as a quota file has it; of ``dimensions`` an empty name is written too."""
    parts = {"user": user, "client-id": client_id, "ip": ip}
    return "{" + ", ".join(_part(part, name) for part, name in parts.items() if name or part in dimensions) + "}"


def _part(dimension: str, name: Name) -> str:
    match name:
        case Default():
            return f"{dimension}: {{default: true}}"
        case Group(text):
            return f"{dimension}-group: {quoted(text)}"
        case Prefix(text):
            return f"{dimension}: {{prefix: {quoted(text)}}}"
    return f"{dimension}: {quoted(name or '')}"


def quoted(name: str) -> str:
    """Return a name as YAML, on one line, that every reader takes for this text."""
    if _PLAIN.fullmatch(name) and name.lower() not in _OTHER_TYPES:
        return name
    return f'"{"".join(_escaped(character) for character in name)}"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08x}"


def _rate(bytes_per_s: float) -> str:
    for unit, most in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if bytes_per_s >= most:
            return f"{bytes_per_s / most:.3g} {unit}/s"
    return f"{bytes_per_s:.0f} B/s"
