"""A log of quota changes: the most recent ones in detail (who, when, from where), and counts of all."""

from collections import Counter, deque
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from proxy.runtime.clock import wall_s
from proxy.runtime.names import label
from quotas.kinds import QuotaKind
from quotas.numbers import java_double
from quotas.stores.alteration import Alteration, Altered
from quotas.stores.unlimited import as_described

log = structlog.get_logger("sluice")

KEPT: Final = 100
_MOST_LOGGED_EDITS: Final = 20
"""Limit for changes by other means, which may be all quotas at once."""

OUTCOMES: Final = ("made", "edited", "unchanged", "refused", "unauthorized", "failed")
"""Outcomes of a requested change. ``edited`` are changes made directly in the store, which cannot be refused."""


class ChangeLog:
    """The last hundred changed limits, and the counts of all. ``store`` is the store's type."""

    def __init__(self, store: str) -> None:
        self.store = store
        self.counts: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
        """Entities by outcome."""
        self._last: deque[dict[str, Any]] = deque(maxlen=KEPT)

    def count(self, outcome: str, entities: int = 1) -> None:
        self.counts[outcome] += entities

    def tell(
        self, altered: Sequence[Altered], by: Alteration | None, *, aloud: bool = True, store: str | None = None
    ) -> None:
        """Remember the changed limits, and log them if ``aloud``: of very many, only the last and the first ones.

        ``by`` is None if the store was changed by other means. ``store``: another one.
        """
        store = store or self.store
        at = datetime.fromtimestamp(wall_s(), UTC).isoformat(timespec="milliseconds")
        self._last += [{"at": at, **self._change(each, by, store)} for each in altered[-KEPT:]]
        if aloud:
            most = _MOST_LOGGED_EDITS if by is None else KEPT
            for each in altered[:most]:
                log.info("quota changed", **self._change(each, by, store))
            if len(altered) > most:
                log.info("quotas changed", further=len(altered) - most)

    def _change(self, altered: Altered, by: Alteration | None, store: str) -> dict[str, Any]:
        return {
            "quota": label(altered.entity.describe()),
            "kind": altered.kind.value,
            "old": _shown(altered.kind, altered.old),
            "new": _shown(altered.kind, altered.new),
            "store": store,
            **self.origin(by),
        }

    def origin(self, by: Alteration | None) -> dict[str, str]:
        """Return the author of a change, in the words of the log; names are shortened."""
        if by is None:
            return {"who": self.store}
        named = {"who": by.who, "peer": by.peer, "client_id": by.client_id}
        return {key: label(value) for key, value in named.items() if value}

    def last(self) -> list[dict[str, Any]]:
        """Return the kept changes, the latest first."""
        return [*reversed(self._last)]


def _shown(kind: QuotaKind, limit: float | None) -> float | str | None:
    """Return a limit as brokers describe it, for JSON, which has no infinity."""
    if limit is None:
        return None
    limit = as_described(kind, limit)
    return java_double(limit) if limit == float("inf") else limit
