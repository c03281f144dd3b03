"""What caps meant for those whom quotas are recommended for: a quota does nothing about a cap."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from analysis.kernel.units import split_rules
from analysis.replay.gathering import Units
from analysis.replay.recording import Recording

_NEARLY_ALL: Final = 0.99
"""Of the time: intervals are whole milliseconds."""


@dataclass(slots=True)
class Caps:
    """What caps meant for the clients of a unit."""

    names: set[str]
    holding: set[str]
    held_s: float = 0.0
    muted_s: float = 0.0


def under_caps(recording: Recording, wanted: Units) -> dict[int, Caps]:
    """Return by unit the caps that its clients were charged to; those without any are not there."""
    found: dict[int, Caps] = {}
    for kind, unit in wanted.unit_of.items():
        used = recording.used[kind]
        if kind not in recording.circumstances.capped:
            continue
        for client in np.flatnonzero(unit >= 0).tolist():
            caps, held_by = used.caps[client], used.cap_rules[client]
            if caps is None and held_by is None:
                continue
            mine = found.setdefault(int(unit[client]), Caps(set(), set()))
            mine.names.update(split_rules(caps) if caps else ["caps that changed meanwhile"])
            if held_by is not None:
                mine.holding.add(held_by or "several caps")
            mine.held_s += float(used.cap_held_s[client])
            mine.muted_s += float(used.muted_s[client])
    return found


def said_of(caps: Mapping[int, Caps], numbers: Sequence[int]) -> tuple[tuple[str, ...], str, bool]:
    """Return ``caps``, ``held_by`` and ``held_by_caps_alone`` of a Need whose units these are."""
    mine = [caps[number] for number in numbers if number in caps]
    names = sorted(set[str]().union(*(each.names for each in mine)))
    holding = set[str]().union(*(each.holding for each in mine))
    held_by = "" if not holding else holding.pop() if len(holding) == 1 else "several caps"
    held_s, muted_s = sum(each.held_s for each in mine), sum(each.muted_s for each in mine)
    return tuple(names), held_by, held_s >= muted_s * _NEARLY_ALL > 0
