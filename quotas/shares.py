"""The shares of one limit that is counted in several processes (``scope: cluster``).

Each process has a part of the limit, and the parts follow what each uses and who waits there. The limit is divided, and
use is not added up: Kafka's law lets ten seconds' worth go at once, which with sums each process would let go before it
hears of the others. Each process computes all shares alone, from the last demand that every process told
(docs/decisions/0039).
"""

from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest
from typing import Final, NamedTuple

from quotas.counted import CounterKey

_LEAST: Final = 0.02
"""The part of the limit that all processes without use keep together."""
_SPARE: Final = 0.05
"""The part of the limit that processes where nobody waits keep beyond their use, all together, at most."""
_KEPT: Final = 0.5
"""The part of an equal share that a process where clients wait has at least."""

FRESH_MS: Final = 1000
"""The longest throttle at once under a share: by then another share may be in force. The rest stays owed."""


MOST_TOLD: Final = 20_000
"""The most counters of which a process tells its demand."""
_WORTH_TELLING: Final = 0.01


class Demand(NamedTuple):
    """The demand for one counter in one process."""

    used: float = 0.0
    """The rate, as a part of the whole limit."""
    waiting: int = 0
    """Clients that are held back, by user and address."""


def told(demands: Iterable[tuple[CounterKey, Demand]]) -> dict[CounterKey, Demand]:
    """Return the demand that others have to know: where clients wait, or more than a hundredth of the limit is used.

    Clients can make up names that have counters of their own: of too many, the greatest demand counts.
    """
    worth = [each for each in demands if each[1].waiting or each[1].used > _WORTH_TELLING]
    if len(worth) > MOST_TOLD:
        worth = nlargest(MOST_TOLD, worth, key=lambda each: (each[1].waiting > 0, each[1].used))
    return dict(worth)


def shares(demands: Sequence[Demand]) -> list[float]:
    """Return the part of the limit of each process; together they are 1.

    Processes where nobody waits keep what they use and a little more. The rest goes to those where clients wait, by
    their number; if nobody waits anywhere, to all alike.
    """
    number = len(demands)
    spare = _SPARE / number
    kept = [0.0 if each.waiting else each.used + min(each.used / 4, spare) for each in demands]
    waiting = sum(each.waiting for each in demands)
    behind = sum(1 for each in demands if each.waiting)
    most, total = 1 - _KEPT * behind / number, sum(kept)
    if total > most:
        kept, total = [each * most / total for each in kept], most
    rest = 1 - total
    parts = [
        part + rest * (each.waiting / waiting if waiting else 1 / number)
        for part, each in zip(kept, demands, strict=True)
    ]
    least = _LEAST / number
    parts = [max(part, least) for part in parts]
    total = sum(parts)
    return [part / total for part in parts]


def grown_late(
    found: Mapping[CounterKey, float], otherwise: float, before: Mapping[CounterKey, float], usual: float
) -> dict[CounterKey, float]:
    """Return the parts of a process to put in force: one grows a turn after it was found, as by then the others have
    heard of the demand here, and told theirs. ``before`` was found the last time; ``otherwise`` and ``usual`` are the
    parts of counters that are not in it.
    """
    return {key: min(found.get(key, otherwise), before.get(key, usual)) for key in found.keys() | before.keys()}
