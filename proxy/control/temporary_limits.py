"""Limits for a time, on top of those in the store: for an operator who acts now, and changes the quotas later.

With a file (``proxy.control.kept_limits``) they survive a restart.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import structlog

from proxy.control.kept_limits import KeptLimit, read_limits, write_limits
from proxy.runtime.clock import now_ms, wall_s
from proxy.runtime.tasks import every
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from quotas.stores.alteration import Alteration, Altered

log = structlog.get_logger("sluice")

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
        self.file: Path | None = None
        """Keeps them for the next start."""
        self._renew = renew
        self._tell = tell
        self._clock = clock
        self._changing = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None
        self.limits: dict[tuple[Entity, QuotaKind], TemporaryLimit] = {}

    async def restore(self) -> None:
        """Take the limits in the file whose time is not over; they are in force with the next policy."""
        if self.file is None:
            return
        kept = await asyncio.to_thread(read_limits, self.file)
        now, now_s = self._clock(), wall_s()
        self.limits = {
            counter: TemporaryLimit(each.limit, now + int((each.until_s - now_s) * 1000), each.until_s, each.who)
            for counter, each in list(kept.items())[:MOST]
            if 0 < each.until_s - now_s <= LONGEST_MS / 1000
        }
        if self.limits:
            self._watch()
            log.info("temporary limits kept over the restart", path=str(self.file), limits=len(self.limits))

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
        self._watch()

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

    def _watch(self) -> None:
        if self._watching is None:
            self._watching = every(_LOOK_EVERY_S, self.end_overdue, "end temporary limits")

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
        if self.file is not None:
            await asyncio.to_thread(write_limits, self.file, [_kept(*each) for each in self.limits.items()])


def _kept(counter: tuple[Entity, QuotaKind], limit: TemporaryLimit) -> KeptLimit:
    user, client_id = (None if name is None else str(name) for name in (counter[0].user, counter[0].client_id))
    return KeptLimit(
        user=user, client_id=client_id, kind=counter[1], limit=limit.limit, until_s=limit.until_s, who=limit.who
    )
