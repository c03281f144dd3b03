"""The quotas in force: loaded from the store at the start, and again whenever it changes."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog

from config.problems import ConfigError
from proxy.edge.stats import Stats
from proxy.runtime.clock import now_ms, wall_s
from proxy.runtime.names import label
from quotas.engine import Engine
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from quotas.stores.file import load

log = structlog.get_logger("sluice")

_MAX_LOGGED_PROBLEMS = 20
_MAX_LOGGED_CHANGES = 20


def _nothing() -> None:
    """Nobody is to be told."""


class QuotaFile:
    """Puts what a quota file says in force. With ``enabled`` False it is read and checked, and nothing is in force."""

    def __init__(self, path: Path, engine: Engine, stats: Stats, *, enabled: bool) -> None:
        self.path = path
        self._engine = engine
        self._stats = stats
        self._enabled = enabled
        self.policy = Policy()
        self.loaded_at_s = 0.0
        """Wall time of the last good load; 0.0 before the first."""
        self.on_applied: Callable[[], None] = _nothing
        """Told each time when quotas have been put in force."""
        self._loading = asyncio.Lock()

    async def load(self) -> bool:
        """Load the file and put it in force; what cannot be loaded leaves everything as it was."""
        async with self._loading:  # of two at once, the one that read first must not come last
            return await self._load()

    async def _load(self) -> bool:
        try:
            loaded = await asyncio.to_thread(load, self.path)
        except ConfigError as error:
            self._refuse(error)
            return False
        old = self.policy
        if self._enabled:
            self.policy = loaded.policy
        change = self._engine.apply(self.policy, now_ms())
        self.on_applied()
        is_first, self.loaded_at_s = not self.loaded_at_s, wall_s()
        self._stats.reloads["ok"] += 1
        self._stats.reload_error = None
        if not is_first:  # at the start everything is new
            await asyncio.to_thread(_log_changes, old, self.policy)
        for warning in loaded.warnings[:_MAX_LOGGED_PROBLEMS]:
            log.warning("quotas", problem=str(warning))
        if len(loaded.warnings) > _MAX_LOGGED_PROBLEMS:
            log.warning("quotas", further_problems=len(loaded.warnings) - _MAX_LOGGED_PROBLEMS)
        log.info(
            "quotas in force",
            path=str(self.path),
            added=change.added,
            changed=change.changed,
            removed=change.removed,
        )
        return True

    async def reload(self) -> None:
        """Load the file again."""
        await self.load()

    def _refuse(self, error: ConfigError) -> None:
        self._stats.reloads["failed"] += 1
        self._stats.reload_error = str(error.problems[0])
        became = "the old ones stay in force" if self.loaded_at_s else "the proxy does not start without them"
        event = f"quotas not loaded, {became}"
        for problem in error.problems[:_MAX_LOGGED_PROBLEMS]:
            log.error(event, problem=str(problem))
        if len(error.problems) > _MAX_LOGGED_PROBLEMS:
            log.error("quotas not loaded", further_problems=len(error.problems) - _MAX_LOGGED_PROBLEMS)


def _log_changes(old: Policy, new: Policy) -> None:
    """Say of each quota that is another what it was and what it is; of a great many, of the first."""
    changed = [
        (entity, kind)
        for entity in {**old.limits, **new.limits}
        if old.limits.get(entity) != new.limits.get(entity)
        for kind in QuotaKind
        if _limit(old, entity, kind) != _limit(new, entity, kind)
    ]
    for entity, kind in changed[:_MAX_LOGGED_CHANGES]:
        of_whom = label(entity.describe())
        log.info(
            "quota changed",
            quota=of_whom,
            kind=kind.value,
            old=_limit(old, entity, kind),
            new=_limit(new, entity, kind),
        )
    if len(changed) > _MAX_LOGGED_CHANGES:
        log.info("quotas changed", further=len(changed) - _MAX_LOGGED_CHANGES)


def _limit(policy: Policy, entity: Entity, kind: QuotaKind) -> float | None:
    return policy.limits.get(entity, {}).get(kind)
