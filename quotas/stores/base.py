"""What every store of quotas does, whatever it keeps them in: the contract that tests/quotas/stores/contract.py tests.

Everything here may wait, for a disk or a network, and is called off the event loop, one call at a time; but for
``changed`` and ``staleness_ms``, which are looks at what is known and never wait. A store may have threads of its own
(a ZooKeeper client's): they only make ``changed`` true, and nobody is called back on them.
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
    """A store could not do what it was asked to; the text says why and what to do."""


class UnreadableError(StoreError):
    """The quotas are not known: unreachable, forbidden or wrong. Never to be taken for "no quotas".

    It carries every problem found, and the ``rest``: what there is all the same, where a store is of several and the
    last that was known of one stands in for it. None: nothing is known. ``away``: the store may come back by itself, or
    by what somebody does elsewhere; otherwise what is configured here is wrong.
    """

    def __init__(self, problems: Sequence[Problem], rest: "Loaded | None" = None, *, away: bool = False) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems
        self.rest = rest
        self.away = away


class UnwritableError(StoreError):
    """Nothing was written, and trying again will not help."""


class ChangedMeanwhileError(StoreError):
    """Nothing was written: the store holds something else than whoever asked has seen. Load it and ask again."""


@dataclass(frozen=True, slots=True)
class Unread:
    """What stands in a store and could not be taken. Never to be taken for "no quota"."""

    problem: Problem
    entity: Entity | None = None
    """Whose limits are not known for that; None where it is nobody that quotas here could be for."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """All that a store holds at one moment."""

    policy: Policy
    version: str
    """Another one whenever the store holds something else."""
    source: str
    """Which store it is, for people: the path of a file."""
    places: Mapping[Entity, int | str] = field(default_factory=dict)
    """Where in the store each entity's quota stands: a line, a node."""
    warnings: Sequence[Problem] = ()
    """What is doubtful or not enforced."""
    unread: Sequence[Unread] = ()
    """What was skipped; its problems are among the warnings."""
    author: str = ""
    """Who brought it to what it is, for the record; "" where the store does not say."""

    def where(self, entity: Entity, kind: QuotaKind | None = None) -> str:  # noqa: ARG002  all kinds stand together
        """Return where a quota stands, as ``quotas.yaml:12``."""
        return f"{self.source}:{self.places[entity]}"


class QuotaStore(ABC):
    """A place that quotas are kept in. Times are milliseconds of one clock that only goes forwards."""

    def __init__(self) -> None:
        self._stale_since_ms: int | None = None

    def load(self, now_ms: int) -> Loaded:
        """Return what the store holds now. Raises UnreadableError."""
        try:
            loaded = self._load()
        except Exception:  # a fault of ours leaves quotas as unknown as a store that is away
            if self._stale_since_ms is None:
                self._stale_since_ms = now_ms
            raise
        self._stale_since_ms = None
        return loaded

    def staleness_ms(self, now_ms: int) -> int:
        """Return for how long the store may have held something else than what was loaded last: 0 if it was well."""
        return 0 if self._stale_since_ms is None else max(now_ms - self._stale_since_ms, 0)

    @abstractmethod
    def changed(self) -> bool:
        """Return whether the store may hold something else than when it was loaded last, well or not.

        To be asked a few times a second: a store may wait for the next look, to see whether more is coming.
        """

    @property
    def answers_clients(self) -> bool:
        """Whether clients that describe or alter quotas are answered by the proxy, from what this store holds.

        False where the brokers hold them, and answer for themselves.
        """
        return True

    def nudge(self) -> None:  # noqa: B027  most stores see a change themselves
        """Look soon: somebody has asked the brokers for a change, and it passed by. To be called as ``changed`` is."""

    def close(self) -> None:  # noqa: B027  most stores hold nothing open
        """Let go of what the store holds open."""

    def alter(self, alteration: Alteration) -> list[Outcome]:
        """Make the changes, and return what became of each, in their order.

        As in a cluster, one that is refused keeps no other from being made, and of two for one entity the first one
        counts. With ``validate_only`` all is the same, and nothing is written. Raises UnreadableError, UnwritableError
        and ChangedMeanwhileError, and then nothing has been written.
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
                message, fix = "stands twice in one request", "make one of them"
                checked.append(Refusal(entity.describe(), message, fix, repeated(change.entity)))
                continue
            checked.append(entity)
            wanted[entity] = limits
        outcomes = self._alter(wanted, alteration) if wanted else {}
        return [Outcome(refused=each) if isinstance(each, Refusal) else outcomes[each] for each in checked]

    @abstractmethod
    def _load(self) -> Loaded:
        """As ``load``."""

    @abstractmethod
    def _alter(self, wanted: Mapping[Entity, Limits], alteration: Alteration) -> Mapping[Entity, Outcome]:
        """As ``alter``, of what Kafka would take; each entity once, None for what is to be removed."""


def altered(policy: Policy, entity: Entity, limits: Limits) -> tuple[Altered, ...]:
    """Return which limits of an entity are to be others than in ``policy``, in the order of ``limits``."""
    before = {kind: float(limit) for kind, limit in policy.limits.get(entity, {}).items()}
    return tuple(
        Altered(entity, kind, before.get(kind), limit) for kind, limit in limits.items() if before.get(kind) != limit
    )
