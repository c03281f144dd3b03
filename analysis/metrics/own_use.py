"""How long a client is usually muted in a moment, by what it used then and just before: what is nobody else's doing.

The mean over all moments in which a client is there is not enough: one that sends heartbeats all night and is held at
its quota for the minutes in which it works would be expected to be muted as long in each. So moments are put together
by how much the client itself used, and of each such level the mean is taken. More own use never makes a usual mute
shorter: a client that another one keeps from using its share is muted while it uses little, and of that own use says
nothing. Of each hour, what is usual is made to agree with how long the client was muted in it: hours are compared with
themselves alone, and one client's hour says nothing of another's.
"""

from typing import Final

import numpy as np

from analysis.table.arrays import Floats, Ints

_LEVELS: Final = 8
"""To each doubling of use."""
_LEFT: Final = 0.25
"""Of what was used a moment before. Less than a half: a burst that has ended is then told from one that begins."""
_BEGINS: Final = 1.5
"""Times what was used just before: a burst begins, and its window of enforcement is not yet full."""
_DOUBLINGS: Final = 4
"""Of how many moments are looked back at; of earlier ones less than a billionth is left."""


def usual(moment: Ints, block: Ints, used: Floats, muted_ms: Floats, active_ms: Floats) -> Floats:
    """Return for how long a client would have been muted by its own use, in each ``moment``; these ascend.

    ``block`` is the hour of each. Of a client whose use says nothing of its mutes it is ``mean``.
    """
    since = recent(moment, used)
    begins = used > _BEGINS * (since - used) / _LEFT
    level = np.floor(_LEVELS * np.log2(np.maximum(since, 1)))
    rate = np.zeros(len(moment))
    for each in (begins, ~begins):
        _, code = np.unique(level[each], return_inverse=True)
        rate[each] = rising(*(np.bincount(code, sums[each]).astype(float) for sums in (muted_ms, active_ms)))[code]
    return agreed(block, rate * active_ms, muted_ms)


def mean(block: Ints, muted_ms: Floats, active_ms: Floats) -> Floats:
    """Return the same by whether it was there alone."""
    return agreed(block, active_ms, muted_ms)


def agreed(block: Ints, expected: Floats, had: Floats) -> Floats:
    """Return ``expected`` with the sum of ``had`` in each block."""
    _, code = np.unique(block, return_inverse=True)
    sums, of = (np.bincount(code, each).astype(float) for each in (had, expected))
    found: Floats = expected * np.divide(sums, of, out=np.zeros(len(of)), where=of > 0)[code]
    return found


def recent(moment: Ints, used: Floats) -> Floats:
    """Return what was used in each moment, and _LEFT of that before, and so on.

    A window of enforcement is as long as a moment, about, and a mute may begin, or end, in the moment after the use.
    """
    if not len(moment):
        return np.zeros(0)
    at = moment - moment[0]
    found = np.zeros(int(at[-1]) + 1)
    found[at] = used
    for doubling in range(_DOUBLINGS):
        back = 2**doubling
        # As many moments again as are in it: the sum of powers, without a step for each.
        found[back:] = found[back:] + found[:-back] * _LEFT**back
    left: Floats = found[at]
    return left


def rising(total: Floats, weight: Floats) -> Floats:
    """Return means (``total`` by ``weight``) that never fall: neighbours that would are put together (isotonic)."""
    blocks: list[tuple[float, float, int]] = []
    for each in zip(total.tolist(), weight.tolist(), strict=True):
        block = (*each, 1)
        while blocks and blocks[-1][0] * block[1] >= block[0] * blocks[-1][1]:
            last = blocks.pop()
            block = (last[0] + block[0], last[1] + block[1], last[2] + block[2])
        blocks.append(block)
    means = [of / by if by > 0 else 0.0 for of, by, _ in blocks]
    return np.repeat(np.array(means), [count for *_, count in blocks])
