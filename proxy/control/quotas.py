"""The quotas in force: loaded from their store at startup, and whenever it changes."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import Final

import structlog

from config.problems import Problem
from proxy.control.change_log import ChangeLog
from proxy.control.temporary_limits import STORE as TEMPORARY
from proxy.control.temporary_limits import TemporaryLimits
from proxy.runtime.clock import now_ms, wall_s
from proxy.runtime.logs import log_problems
from proxy.runtime.names import label
from proxy.runtime.tasks import every
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy, PolicyChange, Terms, change
from quotas.stores.alteration import Alteration, Altered, Outcome
from quotas.stores.base import Loaded, QuotaStore, UnreadableError

log = structlog.get_logger("sluice")

POLL_S: Final = 0.125
"""Interval between checks of the store; a file's change is believed at the second check (docs/decisions/0005)."""
_OVERDUE_EVERY_S: Final = 1.0
_MAX_LOGGED_CHANGES: Final = 20
_MEANWHILE: Final = {
    "refuse": "no client is accepted without them",
    "static": "those of quotas.static are in force until then",
    "unlimited": "no client is limited until then",
}


class QuotasInForce:
    """Keeps the quotas of a store in force: ``apply`` puts a policy in force.

    With ``enabled`` False the store is read and checked, but no quota is in force. ``kind`` is the store's type, for
    the change log.
    """

    def __init__(
        self,
        store: QuotaStore,
        apply: Callable[[Policy], Awaitable[object]],
        *,
        enabled: bool,
        kind: str = "file",
    ) -> None:
        self._store = store
        self._apply = apply
        self._enabled = enabled
        self.changes = ChangeLog(kind)
        self.temporary = TemporaryLimits(self._renew, partial(self.changes.tell, store=TEMPORARY))
        self.configured = Policy()
        """The quotas last read from the store, in force or not; their fallback until the store is ``known``."""
        self.policy = Policy()
        """The quotas in force."""
        self._loaded = Loaded(Policy(), "", "")
        """As last read from the store."""
        self.loaded_at_s = 0.0
        """Wall time of the last successful load; 0.0 before the first."""
        self.loads: Counter[str] = Counter()
        """By outcome: ok, failed."""
        self.error: str | None = None
        """The first problem of the last load, if it failed; else None."""
        self._made: dict[tuple[Entity, QuotaKind], Altered] = {}
        """Limits changed by ``alter`` since the last successful load, to tell them from other edits in the store."""
        self._passed = 0
        """Number of requests for changes passed on to brokers, at the last check."""
        self.decided = asyncio.Event()
        """Set when it has been read, or is no longer waited for."""
        self.stand_in = ""
        """The fallback in force until the store is read: static, unlimited."""
        self._when_unavailable = "refuse"
        self._started = False
        """Startup is over: from now on an unreadable store is retried."""
        self._away = False
        """The store did not answer at the last attempt."""
        self._in_use = asyncio.Lock()
        """Lock of the store: one call at a time, so that loads cannot finish out of order."""

    async def load(self) -> bool:
        """Load the quotas and put them in force; on failure everything stays as it was."""
        async with self._in_use:
            return await self._load()

    async def start(self, when_unavailable: str = "refuse", static: QuotaStore | None = None) -> bool:
        """Load the quotas for the first time. If their store is unavailable, have none in force (``unlimited``), those
        of ``static``, or with ``refuse`` none, and no client may be served before ``known``.

        Returns False if the configuration is wrong.
        """
        self._when_unavailable = when_unavailable
        loaded, fallback = await self.load(), Policy()
        if static is not None:  # read even if it is not needed, so that its errors are reported now
            try:
                fallback = (await asyncio.to_thread(static.load, now_ms())).policy
            except UnreadableError as error:
                log_problems(log.error, "quotas.static not loaded", error.problems)
                return loaded
        if loaded or not self._away:
            return loaded
        self._started = True
        if when_unavailable != "refuse":
            self.stand_in = when_unavailable
            await self._take(fallback)
        return True

    async def _take(self, policy: Policy) -> PolicyChange:
        """Record ``policy`` and put it in force, if quotas are enabled; return what that changed."""
        in_force = await asyncio.to_thread(self.temporary.over, policy) if self._enabled else Policy()
        changed = await asyncio.to_thread(change, self.policy, in_force)
        self.configured, self.policy = policy, in_force
        await self._apply(in_force)
        return changed

    async def _renew(self) -> tuple[Policy, Policy]:
        """Put the quotas in force again, with the temporary limits of now; return those before, and the new ones."""
        async with self._in_use:
            old = self.policy
            await self._take(self.configured)
            return old, self.policy

    async def enable(self, enabled: bool) -> None:
        """Put the last loaded quotas in force, or none."""
        async with self._in_use:
            self._enabled = enabled
            await self._take(self.configured)

    def watch(self, alterations: Callable[[], Awaitable[int]]) -> None:
        """Load the quotas whenever the store changes, and end temporary limits in time.

        ``alterations`` returns the number of requests for changes passed on to the brokers, if these hold the quotas.
        """
        self._alterations = alterations
        every(POLL_S, self._look, "watch the quota store")
        every(_OVERDUE_EVERY_S, self.temporary.end_overdue, "end temporary limits")

    async def alter(self, alteration: Alteration) -> list[Outcome]:
        """Change quotas in the store, and put them in force. Raises as ``QuotaStore.alter``."""
        async with self._in_use:
            outcomes = await asyncio.to_thread(self._store.alter, alteration)
            altered = sum(bool(outcome.altered) for outcome in outcomes)
            if altered and not alteration.validate_only:
                log.info("quotas altered", **self.changes.origin(alteration), entities=altered)
                made = [each for outcome in outcomes for each in outcome.altered]
                self.changes.tell(made, alteration)
                self._made.update({(each.entity, each.kind): each for each in made})
                await self._load()
        return outcomes

    async def close(self) -> None:
        """Close the store; the quotas in force stay."""
        async with self._in_use:
            await asyncio.to_thread(self._store.close)

    def where(self, entity: Entity, kind: QuotaKind) -> str | None:
        """Return where a limit in force is defined: its store, and the place in it; None: it cannot be told."""
        if (limit := self.temporary.limits.get((entity, kind))) is not None:
            return f"temporary, until {datetime.fromtimestamp(limit.until_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
        return self._loaded.where(entity, kind) or None if entity in self._loaded.places else None

    @property
    def known(self) -> bool:
        return self.loaded_at_s > 0

    def staleness_s(self) -> float:
        """Return for how long the quotas in force may have differed from the store; 0 if it could be read."""
        return self._store.staleness_ms(now_ms()) / 1000

    async def _look(self) -> None:
        if not self._store.answers_clients and (passed := await self._alterations()) != self._passed:
            self._passed = passed
            self._store.nudge()
        if self._store.changed():
            await self.load()

    async def _load(self) -> bool:
        failed = self.error
        unread_s = self.staleness_s()
        try:
            loaded = await asyncio.to_thread(self._store.load, now_ms())
            self.error = None
        except UnreadableError as error:
            self._away = error.away
            self._refuse(error.problems)
            if error.rest is None:
                return False
            loaded = error.rest
        except Exception as error:
            self._refuse([Problem("quotas", 0, 0, "", f"internal error: {type(error).__name__}", "please report it")])
            raise
        known, old = self.configured, self.policy
        taken = await self._take(loaded.policy)
        self._loaded = loaded
        self.stand_in = ""
        self.decided.set()
        is_first, self.loaded_at_s = not self.loaded_at_s, wall_s()
        self.loads["ok"] += self.error is None
        if not is_first:  # at the start everything is new
            # After ``alter`` the file's author is the requester of that change, not the previous editor.
            author = "" if self._made else loaded.author
            await asyncio.to_thread(self._tell_of_edits, known, old, author)
        self._made = {}
        log_problems(log.warning, "quotas", loaded.warnings)
        event, unread = "quotas in force", {}
        if failed is not None and self.error is None:
            event = "the quota store is back" if self._away else "quotas are read again"
            unread = {"unread_s": round(unread_s, 1)}
        counts = {"added": taken.added, "changed": taken.changed, "removed": taken.removed}
        log.info(event, path=loaded.source, **counts, **unread)
        return True

    def _tell_of_edits(self, known: Policy, old: Policy, author: str) -> None:
        """Log and count edits made directly in the store, other than those made by ``alter``; log changed terms."""
        edited = _differences(known, self.configured, self._made)
        self.changes.count("edited", len({each.entity for each in edited}))
        self.changes.tell(edited, Alteration([], author) if author else None, aloud=self._enabled)
        new = self.policy
        terms = [entity for entity in {**old.terms, **new.terms} if old.terms.get(entity) != new.terms.get(entity)]
        for entity in terms[:_MAX_LOGGED_CHANGES]:
            log.info("terms of quota changed", quota=label(entity.describe()), new=_said(new.terms.get(entity)))

    def _refuse(self, problems: Sequence[Problem]) -> None:
        self.loads["failed"] += 1
        if self.error == str(problems[0]):
            return  # logged once: an unavailable store is retried again and again
        self.error = str(problems[0])
        log_problems(log.error, f"quotas not loaded, {self._meanwhile()}", problems)

    def _meanwhile(self) -> str:
        """Return the consequence of a failed load, for the log."""
        if self.known:
            return "the old ones stay in force"
        if not (self._away or self._started):
            return "the proxy does not start without them"
        return _MEANWHILE[self._when_unavailable]


def _said(terms: Terms | None) -> dict[str, object]:
    return {name: value for name, value in asdict(terms or Terms()).items() if value}


def _differences(old: Policy, new: Policy, made: Mapping[tuple[Entity, QuotaKind], Altered]) -> list[Altered]:
    """Return the limits that differ, except for changes in ``made``; if one of those had been
    edited before, that edit.
    """
    found = []
    for entity in {**old.limits, **new.limits}:
        before, after = old.limits.get(entity, {}), new.limits.get(entity, {})
        for kind in QuotaKind if before != after else ():
            was, now = before.get(kind), after.get(kind)
            ours = made.get((entity, kind))
            if ours is not None and ours.new == now:
                now = ours.old
            if was != now:
                found.append(Altered(entity, kind, was, now))
    return found
