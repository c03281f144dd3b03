"""A new quota file, if there is no present one."""

from collections.abc import Iterator, Sequence

from analysis.demand.sums import Circumstances
from analysis.recommend.choices import Choices
from analysis.recommend.verdicts import Fate, LimitVerdict
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.stores.edit import edited
from quotas.texts import share, shown


def new_file(of: Sequence[LimitVerdict], per: str, choices: Choices, target: str, circumstances: Circumstances) -> str:
    """Return the text of the file; ``target`` is that of the command line."""
    limits: dict[Entity, dict[QuotaKind, float]] = {}
    for each in of:
        if each.fate is Fate.CHANGE and each.need is not None:
            limits.setdefault(each.entity, {})[each.kind] = each.need.limit
    comments = "".join(f"# {shown(line)}\n" for line in _head(of, per, choices, target, circumstances))
    return edited(f"{comments}quotas: []\n", {}, limits)


def _head(
    of: Sequence[LimitVerdict], per: str, choices: Choices, target: str, circumstances: Circumstances
) -> Iterator[str]:
    yield f"Quotas per {per} by `sluice analyze recommend`: the smallest that meet `{target}`,"
    yield f"and {share(choices.headroom)} more as headroom, rounded up to two digits. Each holds on each broker by"
    yield "itself: it is sized for the broker that needs most."
    yield (
        f"Recorded from {circumstances.begin:%Y-%m-%d %H:%M:%S} to {circumstances.end:%Y-%m-%d %H:%M:%S} UTC, "
        f"{circumstances.instances} proxy instance(s)."
    )
    for note in circumstances.notes():
        yield f"Note: {note}."
    yield "Try it before it is in force: sluice analyze whatif --quotas THIS_FILE --warehouse ..."
    for each in of:
        if each.fate is not Fate.UNUSED:
            yield each.line(propose=False)
