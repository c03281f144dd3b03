"""Recommended quotas as a quota file that explains itself, and that ``sluice check`` accepts."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from analysis.kernel.search import write_bytes
from analysis.page.words import limit, plain
from analysis.recommend.job import Choices, Need, Per, Recommendation
from analysis.replay.recording import Circumstances, cluster_and_instance
from quotas.kinds import BYTES

_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]")
_OTHER_TYPES: Final = frozenset(("yes", "no", "true", "false", "on", "off", "null"))
"""As YAML 1.1 reads them without quotes, in any case."""


def write(found: Sequence[Recommendation], choices: Choices, target: str, circumstances: Circumstances) -> str:
    """Return the file; ``target`` as the operator wrote it."""
    given = [each for each in found if not each.refused]
    refused = [each for each in found if each.refused]
    lines = [*_head(found, choices, target, circumstances), ""]
    lines += ["quotas:", *_quotas(given, choices.per)] if given else ["quotas: []"]
    if refused:
        lines += ["", "# Without a quota here:", *(f"# {line}" for line in _left_out(refused, choices.per))]
    return "".join(f"{line}\n" for line in lines)


def _head(
    found: Sequence[Recommendation], choices: Choices, target: str, circumstances: Circumstances
) -> Iterator[str]:
    yield f"# Quotas per {choices.per} by `sluice analyze recommend`: the smallest that meet `{plain(target)}`,"
    yield (
        f"# and {choices.headroom:.0%} more as headroom, rounded up to two digits; none is below "
        f"{write_bytes(choices.floor)} per second."
    )
    yield (
        f"# Recorded from {circumstances.begin:%Y-%m-%d %H:%M:%S} to {circumstances.end:%Y-%m-%d %H:%M:%S} UTC, "
        f"{len(circumstances.origins_ms)} proxy instance(s), {len(found)} entities with use."
    )
    yield "# A quota holds on each broker and each proxy by itself: it is sized for the one that needs most."
    for note in circumstances.notes():
        yield f"# Note: {plain(note)}."
    if circumstances.capped:
        yield "# Some were under caps, which hold besides these quotas: keep `caps` and `groups` of the present file."
    if circumstances.addresses:
        yield "# connection_creation_rate is left out: its limits are for addresses (`whatif` knows them)."
    yield "# Try it before it is in force: sluice analyze whatif --quotas THIS_FILE --warehouse ..."


def _quotas(given: Iterable[Recommendation], per: Per) -> Iterator[str]:
    for each in given:
        for need in each.needs:
            yield f"  # {_explained(need)}"
        yield f"  - entity: {_entity(each, per)}"
        for need in each.needs:
            yield f"    {need.kind.value}: {_limit(need)}"


def _limit(need: Need) -> str:
    return write_bytes(need.quota) if need.kind.row.unit is BYTES else f"{need.quota:.0f}"


def _explained(need: Need) -> str:
    doing = need.kind.row.doing
    if not need.needed:
        return f"{doing}: needs less than the least quota; now {plain(need.now)}{_caps(need)}"
    rate = _rate if need.kind.row.unit is BYTES else partial(limit, need.kind)
    instance = plain(cluster_and_instance(need.unit.instance)[1])
    where = instance if need.kind.row.of_cluster else f"broker {need.unit.broker}, {instance}"
    return (
        f"{doing}: needs {rate(need.needed)} ({where}); recorded "
        f"p99 {rate(need.p99)}, most {rate(need.most)} in a second and {rate(need.surge)} over the window; "
        f"now {plain(need.now)}; confidence {need.confidence}{_doubt(need)}{_caps(need)}"
    )


def _caps(need: Need) -> str:
    """Say what caps meant: who was held by a cap alone needs no other quota for that."""
    if need.held_by:
        whom = "by that alone, not by a quota" if need.held_by_caps_alone else "by that among others"
        return f"; held by {plain(need.held_by)} while recorded, {whom}: a quota above it changes nothing"
    return f"; under {plain(', '.join(need.caps))} besides, which held nobody" if need.caps else ""


def _doubt(need: Need) -> str:
    return "" if need.answer == "exact" else f" (held up while recorded: {need.answer}, sized for the most)"


def _rate(bytes_per_s: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if bytes_per_s >= size:
            return f"{bytes_per_s / size:.3g} {unit}/s"
    return f"{bytes_per_s:.0f} B/s"


def _left_out(refused: Iterable[Recommendation], per: Per) -> Iterator[str]:
    for each in refused:
        sizes = ", ".join(f"{need.kind.value} {_limit(need)}" for need in each.needs)
        yield f"{_entity(each, per)}: {each.refused}; it would be {sizes}"


def _entity(each: Recommendation, per: Per) -> str:
    parts = {"user": each.user, "client-id": each.client_id}
    wanted = per.value.split(",")
    return "{" + ", ".join(f"{part}: {quoted(parts[part])}" for part in wanted) + "}"


def quoted(name: str) -> str:
    """Return a name as YAML, on one line, that every reader takes for this text."""
    if _PLAIN.fullmatch(name) and name.lower() not in _OTHER_TYPES:
        return name
    return f'"{"".join(_escaped(character) for character in name)}"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08x}"
