"""The owners of all brokers, as one instance knows them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

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
        """Return the owner of a broker. For one that is not in ``owned``, all instances compute the same (rendezvous
        hashing: if candidates come or go, only their own brokers move).
        """
        for node_ids, owner in self.owned:
            if node_id in node_ids:
                return owner
        return max(self.candidates, key=lambda name: blake2b(f"{node_id} {name}".encode()).digest())


def fixed_map(fixed: FixedOwners) -> OwnersMap:
    """Return the map in the settings."""
    instances = fixed.instances
    return OwnersMap(
        tuple((node_ids, name) for name, each in instances.items() for node_ids in each.brokers),
        {name: each.advertise for name, each in instances.items()},
        tuple(instances),
    )


class OwnersInForce:
    """The map in force at ``instance``."""

    def __init__(self, instance: str, in_force: OwnersMap) -> None:
        self.instance = instance
        self.map = in_force
        self._found: dict[int, str] = {}
        """Owners looked up before, by node id."""

    def owner(self, node_id: int) -> str:
        """Return the instance that owns a broker."""
        found = self._found.get(node_id)
        if found is None:
            found = self._found[node_id] = self.map.owner(node_id)
        return found

    def owns(self, node_id: int) -> bool:
        """Whether clients of the broker are served here."""
        return self.owner(node_id) == self.instance

    def elsewhere(self, listener: str, node_id: int) -> Address | None:
        """Return the advertised address of a broker at another instance that owns it; None if this one does."""
        owner = self.owner(node_id)
        if owner == self.instance:
            return None
        endpoint = self.map.endpoints.get(owner, {}).get(listener)
        told = None if endpoint is None else endpoint.advertised(node_id)
        if told is not None:
            return told
        # As at this instance: a name that never resolves, and tells the cause in the client's own log.
        at = re.sub("[^a-z0-9-]", "-", owner.lower())
        return Address(f"node-id-{node_id}-has-no-port-in-sluice-{at[:40]}.invalid", 9092)


def owners_of(settings: Owners) -> OwnersInForce:
    """Return the owners in the settings of an instance, as loaded."""
    assert settings.instance is not None  # noqa: S101  for mypy: the loader fills it in
    return OwnersInForce(settings.instance, fixed_map(settings.fixed))
