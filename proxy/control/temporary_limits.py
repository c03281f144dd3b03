"""Limits for a time, on top of those in the store: for an operator who acts now, and changes the quotas later.

They are in this process alone: a restart ends them, and other instances do not have them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from proxy.runtime.clock import now_ms, wall_s
from proxy.runtime.tasks import every
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from quotas.stores.alteration import Alteration, Altered

MOST: Final = 100
"""The policy is made anew for each."""
LONGEST_MS: Final = 7 * 24 * 3_600_000
STORE: Final = "temporary"
"""In the log of changes, in place of a store."""
_LOOK_EVERY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class TemporaryLimit:
    """A limit of an entity, its end on the monotonic clock, and as wall time."""

    limit: float
    until_ms: int
    until_s: float
    who: str


class TemporaryLimits:
    """``renew`` puts the policy in force anew, with ``over``, and returns the one before and the new one; ``tell`` logs
    changes and who made them.
    """

    def __init__(
        self,
        renew: Callable[[], Awaitable[tuple[Policy, Policy]]],
        tell: Callable[[Sequence[Altered], Alteration], None],
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._renew = renew
        self._tell = tell
        self._clock = clock
        self._changing = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None
        self.limits: dict[tuple[Entity, QuotaKind], TemporaryLimit] = {}

    def over(self, policy: Policy) -> Policy:
        """Return a policy with these limits in it. For a thread: a large policy takes a while."""
        limits = dict(policy.limits)
        for (entity, kind), each in self.limits.copy().items():
            limits[entity] = {**limits.get(entity, {}), kind: each.limit}
        return replace(policy, limits=limits) if self.limits else policy

    async def set(self, entity: Entity, kind: QuotaKind, limit: float, for_ms: int, who: str, source: str) -> None:
        """Put a limit in force for a time, in place of any that the entity has. Raises ValueError if it cannot be."""
        if not 0 < for_ms <= LONGEST_MS:
            raise ValueError("for: a temporary limit lasts at most 168h")
        async with self._changing:
            if len(self.limits) >= MOST and (entity, kind) not in self.limits:
                raise ValueError(f"{MOST} temporary limits are in force: end one first")
            now = self._clock()
            limit_for_a_time = TemporaryLimit(limit, now + for_ms, wall_s() + for_ms / 1000, who)
            await self._put({(entity, kind): limit_for_a_time}, who, source)
        if self._watching is None:
            self._watching = every(_LOOK_EVERY_S, self.end_overdue, "end temporary limits")

    async def end(self, entity: Entity, kind: QuotaKind, who: str, source: str) -> bool:
        """End a limit before its time; return whether there was one."""
        async with self._changing:
            if (entity, kind) not in self.limits:
                return False
            await self._put({(entity, kind): None}, who, source)
            return True

    async def end_overdue(self) -> None:
        """End the limits whose time is over."""
        async with self._changing:
            now = self._clock()
            overdue = [key for key, each in self.limits.items() if each.until_ms <= now]
            if overdue:
                await self._put(dict.fromkeys(overdue), "its end", "")

    async def _put(self, changed: dict[tuple[Entity, QuotaKind], TemporaryLimit | None], who: str, source: str) -> None:
        kept = self.limits
        self.limits = {key: each for key, each in {**kept, **changed}.items() if each is not None}
        try:
            old, new = await self._renew()
        except BaseException:
            self.limits = kept
            raise
        altered = [
            Altered(entity, kind, old.limits.get(entity, {}).get(kind), new.limits.get(entity, {}).get(kind))
            for entity, kind in changed
        ]
        self._tell(altered, Alteration([], who, peer=source))
