"""The cluster store: quotas held by the Kafka cluster itself, read and changed through its brokers."""

import asyncio
import hashlib
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import CancelledError, Future
from typing import Any, Final, TypeVar

from config.problems import Problem
from protocol.client_quotas import (
    Altering,
    Describing,
    alter_request,
    describe_request,
    read_altered,
    read_described,
)
from protocol.errors import ProtocolError
from proxy.brokers import cluster_quotas
from proxy.brokers.cluster_quotas import ClusterQuotas
from proxy.brokers.persistent_connection import Access, PersistentConnection, UnansweredError
from proxy.runtime.tasks import attempt, every
from quotas.entities import Entity
from quotas.stores.alteration import Alteration, Limits, Outcome
from quotas.stores.base import (
    ChangedMeanwhileError,
    Loaded,
    QuotaStore,
    UnreadableError,
    UnwritableError,
    outcome_of,
)

T = TypeVar("T")

MOST_AT_ONCE: Final = 1000
"""Entities in one alteration. A controller accepts 10,000 records in one batch."""
_RETRY_S: Final = 1.0
_RETRY_LOGIN_S: Final = 10.0
"""Pause after a refused login: each attempt is a line in the brokers' logs, and may lock the user."""
_SOON_S: Final = (0.02, 0.08, 0.2, 0.4, 0.8, 1.6)
"""When to look after a change has passed through the proxy: it takes a while to reach the broker that is asked."""
_SETTLES_S: Final = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_NOT_ALLOWED: Final = 31  # CLUSTER_AUTHORIZATION_FAILED
_HEAD: Final = 12  # size, correlation id, throttle time: these differ in each answer
_ALL: Final = describe_request(Describing())


class ClusterStore(QuotaStore):
    """Quotas held by the brokers.

    From the first ``changed`` on they are polled every ``poll_ms``, by the store's own thread over one connection.
    """

    def __init__(self, access: Access, *, poll_ms: int) -> None:
        super().__init__()
        self._source = f"kafka://{','.join(map(str, access.addresses))}"
        self._user = access.user
        self._poll_s = poll_ms / 1000
        self._connection = PersistentConnection(access)
        self._thread = _LoopThread("cluster store", self._connection.close)
        self._watched = False
        self._told = True
        """The quotas may have to be loaded."""
        self._known: bytes | str = b""
        """The last result: a digest of the answer, or the reason why there was none."""
        self._version = ""
        """The version that was loaded last."""
        self._pause_s = self._poll_s
        """Time until the next poll."""
        self._soon = False
        self._soon_again = False

    @property
    def answers_clients(self) -> bool:
        return False

    def changed(self) -> bool:
        if not self._watched:
            self._watched = True
            self._thread.submit(self._watch())
        return self._told

    def nudge(self) -> None:
        self._thread.submit(self._look_soon())

    def close(self) -> None:
        self._thread.close()
        self._watched = False

    def _load(self) -> Loaded:
        found = self._wait(self._loaded())
        places = {entity: entity.describe() for entity in found.policy.limits}
        warnings = [each.problem for each in found.unread]
        return Loaded(found.policy, found.version, self._source, places, warnings, found.unread)

    def write(self, wanted: Mapping[Entity, Limits], alteration: Alteration) -> Mapping[Entity, Outcome]:
        if len(wanted) > MOST_AT_ONCE:
            raise UnwritableError(f"{len(wanted)} entities at once: ask for {MOST_AT_ONCE} at most")
        return self._wait(self._altered(wanted, alteration))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` on the store's thread and return its result."""
        try:
            return self._thread.submit(work).result()
        except CancelledError:
            raise self._unreadable("was closed while it was asked") from None

    # ---------------------------------------------------------------------------------------- on the store's thread

    async def _loaded(self) -> ClusterQuotas:
        self._told = False
        try:
            frame = await self._ask_for_all()
            self._known = _digest(frame)
            found = self._read(frame)
        except UnreadableError as error:
            self._known = str(error)
            raise
        self._version = found.version
        return found

    async def _ask_for_all(self) -> bytes:
        """Return the answer to DescribeClientQuotas. Raises UnreadableError."""
        try:
            frame = await self._connection.ask(_ALL)
        except UnansweredError as error:
            self._pause_s = _RETRY_LOGIN_S if error.refused else min(self._poll_s, _RETRY_S)
            raise self._unreadable(str(error), away=not error.too_old) from None
        self._pause_s = self._poll_s
        return frame

    def _read(self, frame: bytes) -> ClusterQuotas:
        try:
            answer = read_described(frame)
        except ProtocolError as error:
            raise self._unreadable(f"describes its quotas in a way that cannot be read: {error}") from None
        if answer.error_code:
            self._pause_s = min(self._poll_s, _RETRY_S)
        if answer.error_code == _NOT_ALLOWED:
            who = f"let {self._user or 'the user of the connection'} describe the configuration of the cluster"
            fix = f"{who}: kafka-acls --add --cluster --operation DescribeConfigs"
            raise self._unreadable("its quotas may not be read (CLUSTER_AUTHORIZATION_FAILED)", fix)
        if answer.error_code:
            said = answer.message or "no reason given"
            raise self._unreadable(f"answers DescribeClientQuotas with error {answer.error_code}: {said}")
        return cluster_quotas.read(answer.entries, self._source)

    async def _altered(self, wanted: Mapping[Entity, Limits], alteration: Alteration) -> dict[Entity, Outcome]:
        before = self._read(await self._ask_for_all())
        if alteration.version not in (None, before.version):
            raise ChangedMeanwhileError(f"{self._source}: has been changed: load it and try again")
        outcomes = {entity: outcome_of(entity, before.policy.limits.get(entity), of) for entity, of in wanted.items()}
        changes = {entity: outcome.altered for entity, outcome in outcomes.items() if outcome.altered}
        if not changes:
            return outcomes
        asked = cluster_quotas.entries(changes, before.names, alteration)
        try:
            frame = await self._connection.ask_once(
                alter_request(Altering(tuple(asked.values()), alteration.validate_only))
            )
            results = {frozenset(each.entity): each for each in read_altered(frame)}
        except (UnansweredError, ProtocolError) as error:
            raise self._unreadable(
                f"{error}; whether the change was made is not known: look before trying again"
            ) from None
        for entity, entry in asked.items():
            result = results.get(frozenset(entry.entity))
            if result is None:
                raise self._unreadable(f"says nothing of {entity.describe()}: look before trying again")
            if result.error_code == _NOT_ALLOWED:
                who = f"let {self._user or 'the user of the connection'} alter the configuration of the cluster"
                raise UnwritableError(
                    f"{self._source}: quotas may not be changed (CLUSTER_AUTHORIZATION_FAILED): {who}: "
                    "kafka-acls --add --cluster --operation AlterConfigs"
                )
            outcomes[entity] = cluster_quotas.outcome_of(result, entity, changes[entity])
        if not alteration.validate_only:
            await self._settle({entity: wanted[entity] for entity in changes if outcomes[entity].altered})
            self._told = True
        return outcomes

    async def _settle(self, made: Mapping[Entity, Limits]) -> None:
        """Wait until the broker that is asked has the controller's change, so that the next load sees it."""
        for pause_s in _SETTLES_S:
            await asyncio.sleep(pause_s)
            now = self._read(await self._ask_for_all()).policy
            if all(cluster_quotas.holds(now, entity, limits) for entity, limits in made.items()):
                return

    async def _watch(self) -> None:
        every(lambda: self._pause_s, self._look, "watch the quotas of the cluster")

    async def _look(self) -> None:
        """Check whether there is anything to load: other quotas, another failure, or the end of one."""
        if self._told:
            return
        try:
            frame = await self._ask_for_all()
            found: bytes | str = _digest(frame)
            if found != self._known and self._read(frame).version == self._version and isinstance(self._known, bytes):
                self._known = found  # the same quotas in another order
        except UnreadableError as error:
            found = str(error)
        if found != self._known:
            self._told = True

    async def _look_soon(self) -> None:
        """Check several times; if called again meanwhile, once more afterwards: a client that alters often adds no more
        load.
        """
        self._soon_again = True
        if self._soon:
            return
        self._soon = True
        try:
            while self._soon_again:
                self._soon_again = False
                for pause_s in _SOON_S:
                    await asyncio.sleep(pause_s)
                    await attempt("look for a passing change", self._look)
        finally:
            self._soon = False

    def _unreadable(self, message: str, hint: str = "", *, away: bool = True) -> UnreadableError:
        return UnreadableError([Problem(self._source, 0, 0, "", message, hint)], away=away)


def _digest(frame: bytes) -> bytes:
    """Return a digest of an answer, to notice changes without parsing 50,000 quotas every few seconds."""
    return hashlib.sha256(frame[_HEAD:]).digest()


class _LoopThread:
    """An event loop on its own thread, as a store is called from any: it starts with the first work. ``close`` cancels
    what is not done, then awaits ``at_end``.
    """

    def __init__(self, name: str, at_end: Callable[[], Awaitable[object]]) -> None:
        self._name = name
        self._at_end = at_end
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting = threading.Lock()

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run ``work`` on the thread; returns immediately."""
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """End the thread and wait for it. The next ``submit`` starts a new one."""
        with self._starting:
            loop, self._loop = self._loop, None
            if loop is not None:
                asyncio.run_coroutine_threadsafe(self._end(), loop)
                self._thread.join()
                loop.close()

    async def _end(self) -> None:
        try:
            if others := asyncio.all_tasks() - {asyncio.current_task()}:
                for task in others:
                    task.cancel()
                await asyncio.wait(others)
            await self._at_end()
        finally:
            asyncio.get_running_loop().stop()
