"""Warnings about valid entries of a quota file that are most likely mistakes, each with a fix and a name.

They are warnings only: any name and any limit above 0 is accepted.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from config.problems import NO_VARIABLES, InvalidValue, Steps, holds_a_variable
from quotas.entities import ANONYMOUS, Entity, Name
from quotas.kinds import BYTES, MUTATIONS, PERCENT, QuotaKind

BATCH_BYTES: Final = 16 * 1024
"""The default of a producer's ``batch.size``."""
REQUEST_PERCENT_S: Final = 0.01
"""The thread time of a small request: a tenth of a millisecond."""
_ALLOWANCE_MS: Final = 10_000
"""The burst of a byte rate: ten of the eleven samples of a second (docs/quotas.md)."""
_MAX_SHOWN: Final = 100

_PER_SECOND: Final = re.compile(r"(.*\w)\s*(?:/\s?s|/\s?sec|ps|/second)", re.IGNORECASE)
_NO_LIMIT: Final = frozenset(("unlimited", "infinite", "infinity", ".inf", "inf", "none", "max", "-1", "no"))

BELOW_ONE_BATCH: Final = "below-one-batch"
_UNIT: Final = "is the unit right?"
_OF_THREADS: Final = "it is in percent of one thread: 100 is a whole one"
_FOR_ALL: Final = "write {default: true} for all that have no quota of their own"
_FOR_EACH: Final = "write a quota for each name, or {default: true} for all that have none of their own"
_PLAIN: Final = re.compile(rf"(?!(?i:default|{ANONYMOUS})$)[A-Za-z0-9_.-]+")
_QUOTING: Final = re.compile(r"[<>{}'\" ]")
_PATTERN: Final = re.compile(r"[*?]|^\^|\.\+|\\[dsw]|\[\w-\w")
_SEVERAL: Final = re.compile(r"[\w.:@-]+(?:\s*[,;]\s*[\w.:@-]+)+")
_LEAST: Final = {
    BYTES.rate: (BATCH_BYTES, f"one batch of {BATCH_BYTES // 1024} KiB (batch.size)", _UNIT, BELOW_ONE_BATCH),
    PERCENT.rate: (REQUEST_PERCENT_S, "a request of 0.1 ms", _OF_THREADS, "below-one-request"),
    MUTATIONS.rate: (1.0, "one partition", "it is in partitions a second", "below-one-partition"),
}
_PRINCIPAL_TYPE: Final = re.compile(r"^user:\s*", re.IGNORECASE)  # ACLs write it, quotas do not


class Mistakes(dict[tuple[str, str, str], list[Steps]]):
    """The likely mistakes in a file: the places of each, by its message, fix and name."""

    def add(self, steps: Steps, mistake: InvalidValue | None) -> None:
        if mistake is not None:
            self.setdefault((mistake.message, mistake.hint, mistake.name), []).append(steps)


def of_name(dimension: str, name: str) -> InvalidValue | None:
    """Return a warning about the name of a user or client-id: only the likeliest mistake."""
    if _PLAIN.fullmatch(name):
        return None
    found = next(_of_name(dimension, name), None)
    shown = name if len(name) <= _MAX_SHOWN else f"{name[:_MAX_SHOWN]}…"
    return None if found is None else InvalidValue(f"{shown!r} {found[1]}", found[2], name=found[0])


def _of_name(dimension: str, name: str) -> Iterator[tuple[str, str, str]]:
    """Yield for each warning its name, the message, and the fix."""
    if holds_a_variable(name):
        yield "variable-in-name", "is a name as it stands", NO_VARIABLES
    if _QUOTING.sub("", name).casefold() in {"default", "default:true", "*"}:
        yield "default-is-a-name", "is a name, and not the default", _FOR_ALL
    if name != name.strip():
        yield (
            "whitespace-in-name",
            "begins or ends with whitespace, which is part of the name",
            f"write {name.strip()!r}",
        )
    if not name.isprintable():
        yield "invisible-in-name", "holds a character that cannot be seen", "write the name again, by hand"
    # The subject of a certificate may contain a wildcard host, CN=*.example.com, and is a valid user.
    if "=" not in name and _PATTERN.search(name):
        yield "glob-is-a-name", "is a name as it stands: Kafka's quotas know no wildcards", _FOR_EACH
    if _SEVERAL.fullmatch(name):
        yield "several-in-one-name", "is one name and not several", _FOR_EACH
    if dimension == "user":
        plain = _PRINCIPAL_TYPE.sub("", name)
        if name != ANONYMOUS and plain.casefold() == ANONYMOUS.casefold():
            yield "anonymous-misspelt", "is not the user of clients that have not logged in", f"write {ANONYMOUS}"
        if plain != name:
            yield (
                "principal-type-in-name",
                "begins with the type of a principal, which quotas leave out",
                f"write {plain!r}",
            )


def of_limit(kind: QuotaKind, limit: float, written: object, burst_ms: int | None = None) -> InvalidValue | None:
    """Return a warning about a limit that, even with its burst, is below a single batch, request or partition."""
    burst_s = (_ALLOWANCE_MS if burst_ms is None else burst_ms) / 1000
    least, what, fix, name = _LEAST.get(kind.row.unit.rate, (0.0, "", "", ""))
    of_bytes = kind.row.unit is BYTES
    if limit * burst_s >= least or (of_bytes and limit >= least):
        return None
    if of_bytes and str(written).isdecimal():
        fix = f"did you mean {written}KiB or {written}MiB?"
    rate = f"{written} a second" if of_bytes else written
    held = _long(least / limit)
    return InvalidValue(
        f"{rate} is less than {what} in {burst_s:g} seconds: a client is held for {held} after each", fix, name=name
    )


def of_small_limits(limits: Mapping[Entity, Mapping[QuotaKind, float]]) -> tuple[Entity, int, InvalidValue] | None:
    """Return the first quota with a byte rate below a batch a second, the number of such rates, and a warning about the
    smallest. Shown by commands, not logged: such quotas work, and may be intended.
    """
    small = [
        (limit, entity)
        for entity, of_entity in limits.items()
        for kind, limit in of_entity.items()
        if kind.row.unit is BYTES and limit < BATCH_BYTES
    ]
    if not small:
        return None
    return small[0][1], len(small), of_small_rate(min(limit for limit, _ in small))


def of_small_rate(limit: float) -> InvalidValue:
    """Return the effect of a byte rate below a batch a second, once its burst is used."""
    message = (
        f"a byte rate below one batch of {BATCH_BYTES // 1024} KiB (batch.size) a second: once its burst is used, a "
        f"client is held for up to {_long(BATCH_BYTES / limit)} after each"
    )
    return InvalidValue(message, _UNIT, name=BELOW_ONE_BATCH)


def of_case(twin: str) -> InvalidValue:
    """Return a warning about an entity that differs from ``twin`` only in case."""
    message = f"differs from {twin} in upper and lower case alone"
    return InvalidValue(message, "Kafka tells them apart: are they two?", name="differs-in-case")


def of_unused_group() -> InvalidValue:
    """Return a warning about a group without a quota."""
    return InvalidValue("no quota is for this group", "write one, or remove it", name="unused-group")


def fix_of_rate(written: str) -> str:
    """Return the fix for a limit that is written per second, or as unlimited."""
    if written.casefold() in _NO_LIMIT:
        return "remove the line for no limit"
    rate = _PER_SECOND.fullmatch(written[:64])
    return f"write {rate[1]}: a rate is per second" if rate is not None else ""


def folded(entity: Entity) -> tuple[Name | bool, ...]:
    """Return a key that is equal for entities that differ only in case."""
    user, client_id = entity.user, entity.client_id
    return (
        entity.cap,
        user.casefold() if isinstance(user, str) else user,
        client_id.casefold() if isinstance(client_id, str) else client_id,
        entity.ip,
    )


def _long(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds" if seconds >= 2 else f"{seconds:.1f} seconds"
