"""What a store keeps of a node."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from quotas.entities import Entity
from quotas.kinds import QuotaKind


@dataclass(frozen=True, slots=True)
class Held:
    """The quotas of a node, and what is wrong with it."""

    entity: Entity | None
    limits: Mapping[QuotaKind, float]
    problem: str = ""
    unread: bool = False
    """It is no quota, and these are of before."""
    digest: int = 0
    """Of path and limits: the version of a store is the sum of all, and one change makes one of them anew."""


def digest(path: str, limits: Mapping[QuotaKind, float]) -> int:
    """Return what tells the limits of a node from others; 0 for none."""
    if not limits:
        return 0
    return int.from_bytes(hashlib.sha256(f"{path}={sorted(limits.items())}".encode()).digest())
