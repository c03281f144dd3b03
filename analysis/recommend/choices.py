"""Options by which quotas are sized."""

from dataclasses import dataclass
from enum import StrEnum

from analysis.kernel.target import Target
from quotas.kinds import BYTES, QuotaKind


class Per(StrEnum):
    """The entity type of quotas in a new file."""

    USER = "user"
    CLIENT_ID = "client-id"
    PAIR = "user,client-id"


@dataclass(frozen=True, slots=True)
class Choices:
    """How quotas are sized."""

    target: Target
    headroom: float = 0.15
    floor: float = 1000.0
    """Bytes per second: no quota is below."""
    entities: tuple[str, ...] = ()
    """Patterns with ``*`` and ``?``; none: everybody."""

    def least(self, kind: QuotaKind) -> float:
        """Return the least quota of a kind: ``floor`` is of those whose limits are bytes."""
        return self.floor if kind.row.unit is BYTES else 1.0
