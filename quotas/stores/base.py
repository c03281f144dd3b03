"""The interface of all quota stores; tests/quotas/stores/contract.py tests it.

Methods may block on a disk or a network, and are called off the event loop, one call at a time. Only ``changed`` and
``staleness_ms`` never block. A store may have threads of its own (a ZooKeeper client's): they only make ``changed``
true, and run no callbacks.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from config.problems import Problem
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from quotas.stores.alteration import Alteration, Altered, Limits, Outcome, Refusal, check, repeated


class StoreError(Exception):
    """A store operation failed; the text says why and what to do."""


class UnreadableError(StoreError):
    """The quotas could not be read: unreachable, forbidden or wrong. Must never be treated as "no quotas".

    It carries every problem found. ``rest``: the quotas of a layered store with the last known state of the layer that
    failed; None: nothing is known. ``away``: the store may come back by itself, or by a change elsewhere; otherwise the
    configuration here is wrong.
    """

    def __init__(self, problems: Sequence[Problem], rest: "Loaded | None" = None, *, away: bool = False) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems
        self.rest = rest
        self.away = away


class UnwritableError(StoreError):
    """The write was refused, and trying again will not help."""


class ChangedMeanwhileError(StoreError):
    """The write was refused: the store no longer holds the version that the caller has seen. Load it and try again."""


@dataclass(frozen=True, slots=True)
class UnreadableEntry:
    """An entry of a store that could not be read. Must never be treated as "no quota"."""

    problem: Problem
    entity: Entity | None = None
    """The entity whose limits are unknown; None if the entry can be of no entity."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The content of a store at one moment."""

    policy: Policy
    version: str
    """Changes with the content."""
    source: str
    """The store's name for people: the path of a file."""
    places: Mapping[Entity, int | str] = field(default_factory=dict)
    """The place of each entity's quota: a line, a node."""
    warnings: Sequence[Problem] = ()
    """Entries that are doubtful or not enforced."""
    unread: Sequence[UnreadableEntry] = ()
    """Entries that were skipped; their problems are among the warnings."""
    author: str = ""
    """The author of the last change, for the change log; "" if the store does not know."""

    def where(self, entity: Entity, kind: QuotaKind | None = None) -> str:  # noqa: ARG002  one place for all kinds
        """Return the place of a quota, such as ``quotas.yaml:12``."""
        return f"{self.source}:{self.places[entity]}"


class QuotaStore(ABC):
    """A store of quotas. Times are milliseconds of a monotonic clock."""

    def __init__(self) -> None:
        self._stale_since_ms: int | None = None

    def load(self, now_ms: int) -> Loaded:
        """Return the store's content. Raises UnreadableError."""
        try:
            loaded = self._load()
        except Exception:  # after a bug quotas are as unknown as with an unreachable store
            if self._stale_since_ms is None:
                self._stale_since_ms = now_ms
            raise
        self._stale_since_ms = None
        return loaded

    def staleness_ms(self, now_ms: int) -> int:
        """Return how long loading has failed, in ms: 0 if the last load succeeded."""
        return 0 if self._stale_since_ms is None else max(now_ms - self._stale_since_ms, 0)

    @abstractmethod
    def changed(self) -> bool:
        """Return whether the store may have changed since the last load, successful or not.

        Polled a few times a second: a store may wait for the next poll, to see whether more changes follow.
        """

    @property
    def answers_clients(self) -> bool:
        """Whether the proxy answers clients that describe or alter quotas, from this store.

        False if the brokers hold the quotas and answer themselves.
        """
        return True

    def nudge(self) -> None:  # noqa: B027  most stores notice changes themselves
        """Poll soon, because a change was seen on its way to the brokers. Called from the same place as ``changed``."""

    def close(self) -> None:  # noqa: B027  most stores have nothing to close
        """Release connections and files."""

    def alter(self, alteration: Alteration) -> list[Outcome]:
        """Make the changes, and return the outcome of each, in order.

        As in a cluster, a refused change does not prevent the others, and of two for one entity the first one counts.
        With ``validate_only`` nothing is written. Raises UnreadableError, UnwritableError and ChangedMeanwhileError;
        then nothing was written.
        """
        checked: list[Refusal | Entity] = []
        wanted: dict[Entity, Limits] = {}
        for change in alteration.changes:
            found = check(change)
            if isinstance(found, Refusal):
                checked.append(found)
                continue
            entity, limits = found
            if entity in wanted:
                message, fix = "occurs twice in one request", "merge the two"
                checked.append(Refusal(entity.describe(), message, fix, repeated(change.entity)))
                continue
            checked.append(entity)
            wanted[entity] = limits
        outcomes = self.write(wanted, alteration) if wanted else {}
        return [Outcome(refused=each) if isinstance(each, Refusal) else outcomes[each] for each in checked]

    @abstractmethod
    def _load(self) -> Loaded:
        """Read the store, for ``load``."""

    @abstractmethod
    def write(self, wanted: Mapping[Entity, Limits], alteration: Alteration) -> Mapping[Entity, Outcome]:
        """Make changes that Kafka would accept, for ``alter``, or for a store in front of this one.

        ``wanted`` are the changes; of ``alteration`` count the author, the version and ``validate_only``.
        """


def outcome_of(entity: Entity, before: Mapping[QuotaKind, float] | None, limits: Limits) -> Outcome:
    """Return the outcome of a change that is not refused: the limits that differ from ``before``."""
    old = {kind: float(limit) for kind, limit in (before or {}).items()}
    differ = [kind for kind, limit in limits.items() if old.get(kind) != limit]
    return Outcome(None, tuple(Altered(entity, kind, old.get(kind), limits[kind]) for kind in differ))
