"""The cached quotas of one ZooKeeper node."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from quotas.entities import Entity
from quotas.kinds import QuotaKind


@dataclass(frozen=True, slots=True)
class CachedNode:
    """The quotas of a node, and its problem if it has one."""

    entity: Entity | None
    limits: Mapping[QuotaKind, float]
    problem: str = ""
    unread: bool = False
    """The node cannot be read; ``limits`` are its previous ones."""
    digest: int = 0
    """The digest of path and limits: the version of a store is the sum of all, so that one change updates one of them.
    """


def digest(path: str, limits: Mapping[QuotaKind, float]) -> int:
    """Return a digest of a node's limits; 0 for none."""
    if not limits:
        return 0
    return int.from_bytes(hashlib.sha256(f"{path}={sorted(limits.items())}".encode()).digest())
