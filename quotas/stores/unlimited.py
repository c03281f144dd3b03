"""Byte rates of 0 in ZooKeeper: a broker treats them as unlimited, and so do stores (infinity).

Quota files and KRaft brokers have no such 0. Imported, it becomes the largest limit, which ends the search for a quota
in the same way.
"""

from math import inf, isinf
from typing import Final

from quotas.kinds import QuotaKind, Written

MOST: Final = float(2**63 - 1)


def as_described(kind: QuotaKind, limit: float) -> float:
    """Return a limit as brokers describe it."""
    return 0.0 if _is_zero(kind, limit) else float(limit)


def taken_over(kind: QuotaKind, limit: float) -> float:
    """Return a limit in a form that every store can hold."""
    return MOST if _is_zero(kind, limit) else float(limit)


def _is_zero(kind: QuotaKind, limit: float) -> bool:
    return kind.row.written is Written.BYTES and isinf(limit)


def of_zero(kind: QuotaKind, limit: float) -> float:
    """Return the effective limit of one read from ZooKeeper or described by a broker."""
    return inf if limit == 0 and kind.row.written is Written.BYTES else limit
