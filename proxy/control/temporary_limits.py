"""Limits for a time, on top of those in the store: for an operator who acts now, and changes the quotas later.

With a file, next to ``cluster.state``, they survive a restart.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import structlog
from pydantic import BaseModel, ConfigDict, Field

from config.files import read_file
from proxy.runtime.clock import now_ms, wall_s
from proxy.runtime.files import write_atomically
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from quotas.stores.alteration import Alteration, Altered, Change, Refusal, check

log = structlog.get_logger("sluice")

MOST: Final = 100
"""The policy is made anew for each."""
LONGEST_MS: Final = 7 * 24 * 3_600_000
STORE: Final = "temporary"
"""In the log of changes, in place of a store."""


class TemporaryLimit(BaseModel):
    """A limit, as in the file."""

    model_config = ConfigDict(frozen=True)
    user: str | None
    client_id: str | None
    kind: QuotaKind
    limit: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    until_s: Annotated[float, Field(allow_inf_nan=False)]
    """Its end, as wall time."""
    who: str
    until_ms: Annotated[int, Field(exclude=True)] = 0
    """Its end on the monotonic clock."""

    @property
    def counter(self) -> tuple[Entity, QuotaKind]:
        """The counter that it is for. Raises ValueError."""
        named = {"user": self.user, "client-id": self.client_id}
        checked = check(Change({part: name for part, name in named.items() if name}, ((self.kind, self.limit),)))
        if isinstance(checked, Refusal):
            raise ValueError(str(checked))  # noqa: TRY004  user input
        return checked[0], self.kind


class _File(BaseModel):
    version: Annotated[int, Field(ge=1, le=1)] = 1
    limits: Sequence[TemporaryLimit]


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
        self.limits: dict[tuple[Entity, QuotaKind], TemporaryLimit] = {}

    async def restore(self) -> None:
        """Take the limits in the file whose time is not over; they are in force with the next policy."""
        if self.file is None:
            return
        kept = await asyncio.to_thread(_read, self.file)
        now, now_s = self._clock(), wall_s()
        self.limits = {
            counter: each.model_copy(update={"until_ms": now + int((each.until_s - now_s) * 1000)})
            for counter, each in list(kept.items())[:MOST]
            if 0 < each.until_s - now_s <= LONGEST_MS / 1000
        }
        if self.limits:
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
            user, client_id = (None if name is None else str(name) for name in (entity.user, entity.client_id))
            until_s, until_ms = wall_s() + for_ms / 1000, self._clock() + for_ms
            temporary = TemporaryLimit(
                user=user, client_id=client_id, kind=kind, limit=limit, until_s=until_s, who=who, until_ms=until_ms
            )
            await self._put({(entity, kind): temporary}, who, source)

    async def end(self, entity: Entity, kind: QuotaKind, who: str, source: str) -> bool:
        """End a limit before its time; return whether there was one."""
        async with self._changing:
            if (entity, kind) not in self.limits:
                return False
            await self._put({(entity, kind): None}, who, source)
            return True

    async def end_overdue(self) -> None:
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
        if self.file is not None:
            await asyncio.to_thread(_write, self.file, self.limits.values())


def path_beside(state: Path) -> Path:
    """Return the path of the file for a ``cluster.state``: ``brokers.json`` → ``brokers.limits.json``."""
    return state.with_suffix(f".limits{state.suffix}")


def _read(path: Path) -> Mapping[tuple[Entity, QuotaKind], TemporaryLimit]:
    """Return the limits in the file; a file that is not usable is logged, and has none."""
    try:
        return {each.counter: each for each in _File.model_validate_json(read_file(path)).limits}
    except FileNotFoundError:
        return {}
    except OSError as error:
        why = (error.strerror or str(error)).lower()
    except ValueError:
        why = "it does not have the expected form"
    log.error("file of temporary limits not usable: it is ignored, and rewritten", path=str(path), error=why)
    return {}


def _write(path: Path, limits: Iterable[TemporaryLimit]) -> None:
    """Write the file. A failure is logged: the limits are in force all the same."""
    try:
        write_atomically(path, _File(limits=[*limits]).model_dump_json(indent=1) + "\n")
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        log.error("temporary limits not kept: a restart would end them", path=str(path), error=why)
