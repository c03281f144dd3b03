"""The quotas in force: loaded from their store at the start, and again whenever it has changed."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

import structlog

from config.problems import Problem
from proxy.control.change_log import KEPT, ChangeLog, shown
from proxy.runtime.clock import now_ms, wall_s
from proxy.runtime.names import label
from proxy.runtime.tasks import every
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy, PolicyChange, Terms
from quotas.stores.alteration import Alteration, Altered, Outcome
from quotas.stores.base import QuotaStore, UnreadableError

log = structlog.get_logger("sluice")

POLL_S: Final = 0.125
"""How often a store is asked whether it has changed: a file twice before it is believed (docs/decisions/0005)."""
_MAX_LOGGED_PROBLEMS: Final = 20
_MAX_LOGGED_CHANGES: Final = 20
_MEANWHILE: Final = {
    "refuse": "no client is accepted without them",
    "static": "those of quotas.static are in force until then",
    "unlimited": "nobody is limited until then",
}


@dataclass(frozen=True, slots=True)
class Outage:
    """What to do at the start while the store is away: ``refuse``, ``static`` or ``unlimited``."""

    policy: str = "refuse"
    static: QuotaStore | None = None
    """What holds the quotas of ``static``."""


class QuotasInForce:
    """Keeps what a store holds in force: ``apply`` puts a policy in force, and returns what that changed.

    With ``enabled`` False the store is read and checked, and nothing is in force. ``kind`` is the store's, for the
    record.
    """

    def __init__(
        self,
        store: QuotaStore,
        apply: Callable[[Policy], Awaitable[PolicyChange]],
        *,
        enabled: bool,
        kind: str = "file",
    ) -> None:
        self._store = store
        self._apply = apply
        self._enabled = enabled
        self.changes = ChangeLog(kind)
        self.configured = Policy()
        """What the store held last, in force or not; what stands in for it until it is ``known``."""
        self.policy = Policy()
        """In force."""
        self.loaded_at_s = 0.0
        """Wall time of the last good load; 0.0 before the first."""
        self.loads: Counter[str] = Counter()
        """By outcome: ok, failed."""
        self.error: str | None = None
        """The first problem of the last load, if it failed; None when it did not."""
        self._made: dict[tuple[Entity, QuotaKind], Altered] = {}
        """What was altered by ``alter`` since the last good load, which finds all of that and nothing else changed."""
        self._passed = 0
        """Requests for changes that brokers were asked, when it was looked last."""
        self.known = False
        """Whether the store was ever read."""
        self.decided = asyncio.Event()
        """It was, or nobody is to wait for that any more."""
        self.stand_in = ""
        """What is in force instead until it is: static, unlimited."""
        self._outage = Outage()
        self._started = False
        """What is wrong from now on is waited for."""
        self._away = False
        """The store did not answer when it was asked last."""
        self._in_use = asyncio.Lock()
        """Of the store: one call at a time, and of two loads the one that read first must not come last."""

    async def load(self) -> bool:
        """Load the quotas and put them in force; what cannot be loaded leaves everything as it was."""
        async with self._in_use:
            return await self._load()

    async def start(self, outage: Outage) -> bool:
        """Load the quotas for the first time, or do what ``outage`` says where their store is away.

        Returns False where what is configured is wrong. With ``refuse`` nobody may be served before ``known``.
        """
        self._outage = outage
        if await self.load():
            await self._static(outage)  # what is wrong with it is told now, and not when it is needed
            return True
        if not self._away or (static := await self._static(outage)) is None:
            return False
        self._started = True
        if outage.policy != "refuse":
            self.stand_in = outage.policy
            await self._take(static)
        return True

    async def _static(self, outage: Outage) -> Policy | None:
        """Return what is in force until the store is read; None where that cannot be read either."""
        if outage.static is None:
            return Policy()
        try:
            return (await asyncio.to_thread(outage.static.load, now_ms())).policy
        except UnreadableError as error:
            for problem in error.problems[:_MAX_LOGGED_PROBLEMS]:
                log.error("quotas.static not loaded", problem=str(problem))
            return None

    async def _take(self, policy: Policy) -> PolicyChange:
        """Put ``policy`` in force, unless nothing is to be."""
        self.configured = policy
        if self._enabled:
            self.policy = policy
        return await self._apply(self.policy)

    async def reload(self) -> None:
        """Load the quotas again."""
        await self.load()

    async def enable(self, enabled: bool) -> None:
        """Put what was loaded last in force from now on, or nothing."""
        async with self._in_use:
            self._enabled = enabled
            self.policy = self.configured if enabled else Policy()
            await self._apply(self.policy)

    def watch(self, alterations: Callable[[], Awaitable[int]]) -> None:
        """Load the quotas again whenever the store has changed.

        ``alterations`` counts the requests for changes that were passed on to brokers, as far as these hold quotas.
        """
        self._alterations = alterations
        every(POLL_S, self._look, "watch the quota store")

    async def alter(self, alteration: Alteration) -> list[Outcome]:
        """Have the store make changes, and put them in force. Raises what ``QuotaStore.alter`` raises."""
        async with self._in_use:
            outcomes = await asyncio.to_thread(self._store.alter, alteration)
            altered = sum(bool(outcome.altered) for outcome in outcomes)
            if altered and not alteration.validate_only:
                log.info("quotas altered", **self.changes.origin(alteration), entities=altered)
                made = [each for outcome in outcomes for each in outcome.altered]
                self._tell(made, alteration)
                self._made.update({(each.entity, each.kind): each for each in made})
                await self._load()
        return outcomes

    async def close(self) -> None:
        """Let go of the store; what is in force stays."""
        async with self._in_use:
            await asyncio.to_thread(self._store.close)

    def staleness_s(self) -> float:
        """Return for how long what is in force may not be what the store holds: 0 if that could be read."""
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
        change = await self._take(loaded.policy)
        self.stand_in = ""
        self.known = True
        self.decided.set()
        is_first, self.loaded_at_s = not self.loaded_at_s, wall_s()
        self.loads["ok"] += self.error is None
        if not is_first:  # at the start everything is new
            # After ``alter`` the file's author is who asked for that, and not who edited it before.
            author = "" if self._made else loaded.author
            await asyncio.to_thread(self._tell_of_edits, known, old, author)
        self._made = {}
        for warning in loaded.warnings[:_MAX_LOGGED_PROBLEMS]:
            log.warning("quotas", problem=str(warning))
        if len(loaded.warnings) > _MAX_LOGGED_PROBLEMS:
            log.warning("quotas", further_problems=len(loaded.warnings) - _MAX_LOGGED_PROBLEMS)
        event, unread = "quotas in force", {}
        if failed is not None and self.error is None:
            event = "the quota store is back" if self._away else "quotas are read again"
            unread = {"unread_s": round(unread_s, 1)}
        log.info(
            event,
            path=loaded.source,
            added=change.added,
            changed=change.changed,
            removed=change.removed,
            **unread,
        )
        return True

    def _tell_of_edits(self, known: Policy, old: Policy, author: str) -> None:
        """Tell what is another than ``known``, but for what was altered here; and terms that are not those in force."""
        edited = _differences(known, self.configured, self._made)
        self.changes.count("edited", len({each.entity for each in edited}))
        self._tell(edited, Alteration([], author) if author else None, aloud=self._enabled)
        new = self.policy
        terms = [entity for entity in {**old.terms, **new.terms} if old.terms.get(entity) != new.terms.get(entity)]
        for entity in terms[:_MAX_LOGGED_CHANGES]:
            log.info("terms of quota changed", quota=label(entity.describe()), new=_said(new.terms.get(entity)))

    def _tell(self, altered: Sequence[Altered], by: Alteration | None, *, aloud: bool = True) -> None:
        """Keep each limit that is another, and say what it was and what it is; of a great many, of the first."""
        self.changes.note(altered, by)
        if not aloud:
            return
        most = _MAX_LOGGED_CHANGES if by is None else KEPT
        for each in altered[:most]:
            log.info(
                "quota changed",
                quota=label(each.entity.describe()),
                kind=each.kind.value,
                old=shown(each.kind, each.old),
                new=shown(each.kind, each.new),
                store=self.changes.store,
                **self.changes.origin(by),
            )
        if len(altered) > most:
            log.info("quotas changed", further=len(altered) - most)

    def _refuse(self, problems: Sequence[Problem]) -> None:
        self.loads["failed"] += 1
        if self.error == str(problems[0]):
            return  # a store that is away is tried again and again: said once
        self.error = str(problems[0])
        event = f"quotas not loaded, {self._meanwhile()}"
        for problem in problems[:_MAX_LOGGED_PROBLEMS]:
            log.error(event, problem=str(problem))
        if len(problems) > _MAX_LOGGED_PROBLEMS:
            log.error("quotas not loaded", further_problems=len(problems) - _MAX_LOGGED_PROBLEMS)

    def _meanwhile(self) -> str:
        """Return what goes on without a load."""
        if self.known:
            return "the old ones stay in force"
        if not (self._away or self._started):
            return "the proxy does not start without them"
        return _MEANWHILE[self._outage.policy]


def _said(terms: Terms | None) -> dict[str, object]:
    """Return what is said by a rule beside its limits, without what is not."""
    return {name: value for name, value in asdict(terms or Terms()).items() if value}


def _differences(old: Policy, new: Policy, made: Mapping[tuple[Entity, QuotaKind], Altered]) -> list[Altered]:
    """Return the limits that are others, but for those that were ``made`` so: of these, what was changed before."""
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
