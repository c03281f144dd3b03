"""A byte rate of 0, as ZooKeeper may hold it: a broker's arithmetic makes no limit of it, and so do stores (infinity).

In a quota file, and at a broker with KRaft, there is no such 0: taken over it is the most that a limit can be, which
ends the search for a quota just so.
"""

from math import inf, isinf
from typing import Final

from quotas.kinds import QuotaKind, Written

MOST: Final = float(2**63 - 1)


def as_described(kind: QuotaKind, limit: float) -> float:
    """Return a limit as brokers describe it."""
    return 0.0 if _is_zero(kind, limit) else float(limit)


def taken_over(kind: QuotaKind, limit: float) -> float:
    """Return a limit as every store can hold it."""
    return MOST if _is_zero(kind, limit) else float(limit)


def _is_zero(kind: QuotaKind, limit: float) -> bool:
    return kind.row.written is Written.BYTES and isinf(limit)


def of_zero(kind: QuotaKind, limit: float) -> float:
    """Return what a limit in ZooKeeper, or as a broker describes it, comes to."""
    return inf if limit == 0 and kind.row.written is Written.BYTES else limit
