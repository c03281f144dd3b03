"""How quotas are to be sized, as somebody asked for it."""

from dataclasses import dataclass
from enum import StrEnum

from analysis.kernel.target import Target
from quotas.kinds import BYTES, QuotaKind


class Per(StrEnum):
    """Whom quotas are for, where no present ones say it."""

    USER = "user"
    CLIENT_ID = "client-id"
    PAIR = "user,client-id"

    def of(self, user: str, client_id: str) -> str:
        """Return what ``--entities`` is matched with."""
        return {Per.USER: user, Per.CLIENT_ID: client_id, Per.PAIR: f"{user}/{client_id}"}[self]


@dataclass(frozen=True, slots=True)
class Choices:
    """How quotas are sized."""

    target: Target
    per: Per | None = Per.USER
    """None: for whom the present quotas are, or those that were in force."""
    headroom: float = 0.15
    floor: float = 1000.0
    """Bytes per second: no quota is below."""
    entities: tuple[str, ...] = ()
    """Patterns with ``*`` and ``?``; none: everybody."""

    def least(self, kind: QuotaKind) -> float:
        """Return the least quota of a kind: ``floor`` is of those whose limits are bytes."""
        return self.floor if kind.row.unit is BYTES else 1.0
