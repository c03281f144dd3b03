"""All that crosses between the supervisor and its worker, or workers: plain data, and the calls that carry it.

One value, ``InForce``, has everything that must be true in a worker: a start, a restart and a change are all ``put``.
"""

from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from config.settings import Mode, Settings
from proxy.brokers.known_brokers import KnownBrokers
from proxy.owners.map import OwnersMap, owners_of
from proxy.snapshot import ProcessState, WorkerSnapshot
from proxy.state.paging import Query
from proxy.state.rows import Page
from proxy.usage.records import Columns
from quotas.counted import CounterKey
from quotas.policy import Policy
from quotas.shares import Demand


@dataclass(frozen=True, slots=True)
class InForce:
    """Everything that must be true in every worker."""

    settings: Settings
    """Addresses of running listeners may differ from those at the start."""
    mode: Mode
    answers_clients: bool
    """Whether the supervisor answers quota requests."""
    part_otherwise: float
    """The part of limits of the whole cluster for counters that are not in ``parts``."""
    serving: bool = False
    """Clients are served."""
    policy: Policy = Policy()  # noqa: RUF009  frozen
    known: tuple[KnownBrokers, ...] = ()
    """Brokers from the state file, or that another worker has found; their ports open at once."""
    owners: OwnersMap | None = None
    """None: nobody is known to own any broker."""
    fenced: bool = False
    """No broker is served here, whatever ``owners`` says."""
    placed: Mapping[int, int] = field(default_factory=dict)
    """Node id → worker, for the brokers of this instance, if there are several workers."""
    parts: tuple[Mapping[CounterKey, float], ...] = ()
    """For each process: its part of limits of the whole cluster."""
    certificates_loaded: int = 0
    """TLS files are loaded again whenever this rises."""


@dataclass(frozen=True, slots=True)
class Changed:
    """The message to the process of a worker: the fields of ``InForce`` that differ there, at first all of them."""

    worker: int
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Report:
    """The state of a worker, or of all together."""

    node_ids: tuple[int, ...]
    """All known brokers."""
    named: tuple[KnownBrokers, ...]
    """The brokers of each route that answers have named."""
    known: tuple[KnownBrokers, ...]
    """The brokers to know at the next start, of each route where an answer has named any."""
    load: Mapping[int, float]
    """CPU ms a second by broker, smoothed over minutes; empty without ``owners`` and other workers."""
    cpu_s: float
    demand: tuple[Mapping[CounterKey, Demand], ...]
    """For each process: its demand for limits of the whole cluster."""
    not_ready: tuple[str, ...]
    """Why clients cannot be served."""
    alterations: int
    """AlterClientQuotas that were passed on since the start: each may have changed the brokers' quotas."""
    fenced: bool
    workers: tuple[ProcessState, ...] = ()
    """The processes of several workers."""
    wrong_brokers: tuple[str, ...] = ()
    """Brokers at whose addresses another node answers, so that nobody is led there."""


class Processes(Protocol):
    """The worker in the supervisor's process, or several in processes of their own."""

    in_force: InForce
    """As of the last ``put``; with several workers, also what one of them has found."""

    def put(self, in_force: InForce) -> Coroutine[Any, Any, None]:
        """Put in force what differs from before, in this process at once, and everywhere when it has been awaited.

        Raises OSError and ValueError if clients cannot be served.
        """
        ...

    async def report(self) -> Report:
        """Look at all workers: one that does not answer soon counts with what it said last."""
        ...

    async def snapshot(self) -> WorkerSnapshot:
        """Return the state for metrics, and reset the counters in it."""
        ...

    async def page(self, resource: str, query: Query) -> Page:
        """Return the rows of a page of the state API."""
        ...

    def usage(self) -> AsyncIterator[tuple[Columns, int | None]]:
        """Yield the rows of usage records since the last call, also after ``stop``, and of several workers the one
        that counted them.
        """
        ...

    async def close_connections(self, user: str | None, client_id: str | None, peer: str | None) -> int:
        """Close the connections of a user, client-id and peer (None: of any) after their last answers; return how many.
        Their clients may connect again.
        """
        ...

    async def drain(self, timeout_s: float) -> int:
        """Stop accepting, and let sessions finish their requests in flight; return how many were cut off."""
        ...

    async def stop(self) -> int:
        """Stop accepting, cut off all sessions, and end other processes; return the number of sessions."""
        ...

    def kill(self) -> None:
        """End all processes but this one, whatever they do."""
        ...


def at_start(settings: Settings, *, answers_clients: bool) -> InForce:
    """Return what is in force before anything is loaded."""
    owners = owners_of(settings.owners).in_force
    return InForce(settings, settings.quotas.mode, answers_clients, 1 / settings.workers, owners=owners)


def difference(before: InForce | None, wanted: InForce) -> dict[str, Any]:
    """Return the fields that differ, all of them if nothing is in force."""
    values = {each.name: getattr(wanted, each.name) for each in fields(InForce)}
    if before is None:
        return values
    return {name: new for name, new in values.items() if new is not (old := getattr(before, name)) and new != old}
