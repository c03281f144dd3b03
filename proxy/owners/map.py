"""The owners of all brokers, as one instance knows them."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from config.brokers import Endpoint
from config.owners import FixedOwners, Owners
from config.units import Address


@dataclass(frozen=True, slots=True)
class OwnersMap:
    """Which instance owns which brokers, and where clients of each listener find an instance's brokers."""

    owned: tuple[tuple[range, str], ...]
    """Node ids and their owner."""
    endpoints: Mapping[str, Mapping[str, Endpoint]]
    """By instance, and by listener."""
    candidates: tuple[str, ...]
    """The instances among which the owner of any other broker is chosen."""

    def owner(self, node_id: int) -> str:
        for node_ids, owner in self.owned:
            if node_id in node_ids:
                return owner
        return rendezvous(node_id, self.candidates)


def rendezvous(node_id: int, names: Iterable[str]) -> str:
    """Return the owner of a broker that nobody was given: everybody computes the same, and if names come or go, only
    their own brokers move.
    """
    return max(names, key=lambda name: blake2b(f"{node_id} {name}".encode()).digest())


EVERYTHING: Final = OwnersMap((), {}, ("",))
"""The map of an instance without others; its name is ""."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The brokers of one worker among those of its instance."""

    worker: int
    workers: int
    placed: Mapping[int, int] = field(default_factory=dict)
    """Node id → worker; any other broker has one by rendezvous hashing."""

    def worker_of(self, node_id: int) -> int:
        worker = self.placed.get(node_id)
        return int(rendezvous(node_id, map(str, range(self.workers)))) if worker is None else worker


def fixed_map(fixed: FixedOwners) -> OwnersMap:
    instances = fixed.instances
    return OwnersMap(
        tuple((node_ids, name) for name, each in instances.items() for node_ids in each.brokers),
        {name: each.advertise for name, each in instances.items()},
        tuple(instances),
    )


class OwnersInForce:
    """The map in force at ``instance``; None: none is known yet, and it owns no broker.

    ``placement``: of several workers, the brokers of this one. All tell the same address for a broker.
    """

    def __init__(
        self,
        instance: str,
        in_force: OwnersMap | None = None,
        group: str | None = None,
        placement: Placement | None = None,
    ) -> None:
        self.instance = instance
        self.group = None if group is None else group.encode()
        """The group in which owners are elected; no client may join it."""
        self.replace(in_force, placement=placement)

    def replace(self, in_force: OwnersMap | None, *, fenced: bool = False, placement: Placement | None = None) -> None:
        """Put a map in force. ``fenced``: whatever it says, this instance owns no broker."""
        self.placement = placement
        self.in_force = in_force
        self._fenced = fenced
        self._found: dict[int, str | None] = {}
        """Owners looked up before, by node id."""

    @property
    def are_known(self) -> bool:
        """Whether a map was ever in force."""
        return self.in_force is not None

    def owner(self, node_id: int) -> str | None:
        """Return the instance that owns a broker; None if no map is known."""
        if node_id not in self._found:
            self._found[node_id] = None if self.in_force is None or node_id < 0 else self.in_force.owner(node_id)
        return self._found[node_id]

    def owns(self, node_id: int) -> bool:
        """Whether clients of the broker are served here; not if its node id is not known (-1)."""
        return self.owner(node_id) == self.instance and not self._fenced and self.accepts(node_id)

    def accepts(self, node_id: int) -> bool:
        """Whether connections to the broker's port are accepted here: by one worker, also to turn them away."""
        return self.other_worker(node_id) is None

    def other_worker(self, node_id: int) -> int | None:
        """Return the worker that accepts the connections for a broker; None if that is this one."""
        if self.placement is None:
            return None
        worker = self.placement.worker_of(node_id)
        return None if worker == self.placement.worker else worker

    def elsewhere(self, listener: str, node_id: int) -> Address | None:
        """Return the advertised address of a broker at another instance that owns it; None if none is known to."""
        owner = self.owner(node_id)
        if owner is None or owner == self.instance or self.in_force is None:
            return None
        endpoint = self.in_force.endpoints.get(owner, {}).get(listener)
        told = None if endpoint is None else endpoint.advertised(node_id)
        if told is not None:
            return told
        # As at this instance: a name that never resolves, and tells the cause in the client's own log.
        at = re.sub("[^a-z0-9-]", "-", owner.lower())
        return Address(f"node-id-{node_id}-has-no-port-in-sluice-{at[:40]}.invalid", 9092)


def owners_of(settings: Owners | None) -> OwnersInForce:
    """Return the owners in the settings of an instance, as loaded. If they are elected: nobody yet, or all brokers are
    its own (``before_first``).
    """
    if settings is None:
        return OwnersInForce("", EVERYTHING)
    name = settings.instance
    assert name is not None  # noqa: S101  for mypy: the loader fills it in
    in_force = None if settings.fixed is None else fixed_map(settings.fixed)
    if in_force is None and settings.before_first == "serve":
        in_force = OwnersMap((), {}, (name,))
    return OwnersInForce(name, in_force, settings.group)
