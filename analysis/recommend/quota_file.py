"""Recommended quotas as a new quota file that explains itself, and that ``sluice check`` accepts."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from analysis.kernel.advice import Confidence, write_bytes
from analysis.page.words import plain
from analysis.recommend.choices import Choices
from analysis.recommend.needs import Need, Recommendation
from analysis.recommend.wording import entity, needs, of_caps, size, trust
from analysis.replay.recording import Circumstances


def trusted(found: Iterable[Recommendation]) -> Iterator[Recommendation]:
    """Yield the same with needs of low confidence apart, refused for that."""
    for each in found:
        low = tuple(need for need in each.needs if need.confidence is Confidence.LOW)
        if each.refused or not low:
            yield each
            continue
        if kept := tuple(need for need in each.needs if need not in low):
            yield replace(each, needs=kept)
        because = "; ".join(dict.fromkeys(need.low_because for need in low))
        yield replace(each, needs=low, refused=f"confidence low: {because}")


def write(
    found: Sequence[Recommendation],
    choices: Choices,
    target: str,
    circumstances: Circumstances,
    outside: Sequence[str] = (),
) -> str:
    """Return the file; ``target`` as the operator wrote it, ``outside`` who is in none of its quotas."""
    given = [each for each in found if not each.refused]
    refused = [each for each in found if each.refused]
    lines = [*_head(found, choices, target, circumstances)]
    lines += [f"# Left out: {each}; `--per` is for those." for each in outside]
    lines += [""]
    lines += ["quotas:", *_quotas(given, choices)] if given else ["quotas: []"]
    if refused:
        lines += ["", "# Without a quota here:", *(f"# {line}" for line in _left_out(refused, choices))]
    return "".join(f"{line}\n" for line in lines)


def _head(
    found: Sequence[Recommendation], choices: Choices, target: str, circumstances: Circumstances
) -> Iterator[str]:
    whose = f"per {choices.per}" if choices.per else "for whom those in force were"
    yield f"# Quotas {whose} by `sluice analyze recommend`: the smallest that meet `{plain(target)}`,"
    yield (
        f"# and {choices.headroom:.0%} more as headroom, rounded up to two digits; none is below "
        f"{write_bytes(choices.floor)} per second."
    )
    entities = len({(each.user, each.client_id, each.ip) for each in found})
    yield (
        f"# Recorded from {circumstances.begin:%Y-%m-%d %H:%M:%S} to {circumstances.end:%Y-%m-%d %H:%M:%S} UTC, "
        f"{len(circumstances.origins_ms)} proxy instance(s), {entities} entities with use."
    )
    yield "# A quota holds on each broker and each proxy by itself: it is sized for the one that needs most."
    for note in circumstances.notes():
        yield f"# Note: {plain(note)}."
    if circumstances.capped:
        yield "# Some were under caps, which hold besides these quotas: keep `caps` and `groups` of the present file."
    if circumstances.addresses and choices.per:
        yield "# connection_creation_rate is left out: its limits are for addresses (`whatif` knows them)."
    yield "# Try it before it is in force: sluice analyze whatif --quotas THIS_FILE --warehouse ..."


def _quotas(given: Iterable[Recommendation], choices: Choices) -> Iterator[str]:
    for each in given:
        for need in each.needs:
            yield f"  # {_explained(need)}"
        yield f"  - entity: {_entity(each, choices)}"
        for need in each.needs:
            yield f"    {need.kind.value}: {size(need)}"


def _explained(need: Need) -> str:
    sure = f"; {trust(need)}" if need.needed else ""
    return f"{need.kind.row.doing}: {needs(need)}; now {plain(need.now)}{sure}{of_caps(need)}"


def _left_out(refused: Iterable[Recommendation], choices: Choices) -> Iterator[str]:
    for each in refused:
        sizes = ", ".join(f"{need.kind.value} {size(need)}" for need in each.needs)
        yield f"{_entity(each, choices)}: {each.refused}; it would be {sizes}"


def _entity(each: Recommendation, choices: Choices) -> str:
    return entity(each.user, each.client_id, tuple(choices.per.value.split(",")) if choices.per else (), each.ip)
