"""Owners of brokers, chosen by load with few moves: by the leader of the instances, which computes the same whoever it
is, and by the supervisor for its workers.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from proxy.owners.messages import MemberMessage

HYSTERESIS: Final = 0.25
"""A broker moves only if the busiest instance then has less load by this share of the mean."""
DRIFT_S: Final = 300.0
_IDLE_MS: Final = 10.0
"""CPU ms a second of an instance: below a hundredth of a core, loads are no reason to move a broker."""
_LEAST_SHARE: Final = 0.05
"""The load that an idle broker counts for, as a share of the usual one: else one instance would get all idle ones."""


def by_instance(members: Sequence[MemberMessage]) -> dict[str, MemberMessage]:
    """Return the members by name; of two with one name, the later start is the instance."""
    return {each.instance: each for each in sorted(members, key=lambda each: each.boot)}


def assign(members: Mapping[str, MemberMessage], brokers: Collection[int]) -> dict[int, str]:
    """Return the owner of each broker: of those in ``brokers``, and of those that are owned."""
    able = {name: each for name, each in members.items() if each.weight > 0}
    weights = {name: each.weight for name, each in able.items()} or dict.fromkeys(members, 1.0)
    claims: dict[int, str] = {}
    load: dict[int, float] = {}
    for name, each in sorted(members.items(), key=lambda item: (item[1].epoch, item[0])):  # the newest map is right
        claims.update(dict.fromkeys(each.owned, name))
        load.update(each.load)
    return place_brokers(weights, claims, load, {*brokers, *claims})


def place_brokers(
    weights: Mapping[str, float], claims: Mapping[int, str], load: Mapping[int, float], brokers: Collection[int]
) -> dict[int, str]:
    """Return the owner of each broker, by name of those in ``weights``: the heaviest brokers are given first, and one
    that is claimed moves only if that brings enough.
    """
    known = sorted(brokers)
    usual = sum(load.values()) / len(load) if load and sum(load.values()) > 0 else 1.0
    costs = {broker: max(load.get(broker, usual), usual * _LEAST_SHARE) for broker in known}
    loads = _Loads(weights, costs)
    for broker in known:
        if claims.get(broker) in weights:
            loads.give(broker, claims[broker])
    for broker in sorted(set(known) - loads.owners.keys(), key=lambda broker: (-costs[broker], broker)):
        loads.give(broker, min(weights, key=lambda name: (loads.with_more(name, costs[broker]), name)))
    is_idle = sum(load.values()) < _IDLE_MS * len(weights)
    takers = weights.keys() - set(loads.owners.values()) if is_idle else weights.keys()
    while loads.improve(takers):
        pass
    return loads.owners


class Drift:
    """Tells that brokers should be placed anew, as the load is not the one by which they were."""

    def __init__(self) -> None:
        self._since_s: float | None = None

    def is_due(self, placed_by: Mapping[str, float], loads: Mapping[str, float], now_s: float) -> bool:
        """Return whether a load has differed for minutes, by more than a part of the mean. To be called now and then.

        ``placed_by``: the loads by which brokers were placed; ``loads``: those of now; of each instance, or worker.
        """
        least = HYSTERESIS * max(sum(loads.values()) / len(loads), _IDLE_MS)
        if all(abs(load - placed_by.get(name, 0.0)) <= least for name, load in loads.items()):
            self._since_s = None
            return False
        if self._since_s is None:
            self._since_s = now_s
        return now_s - self._since_s >= DRIFT_S


class _Loads:
    """The load of each instance, in proportion to its weight."""

    def __init__(self, weights: Mapping[str, float], costs: Mapping[int, float]) -> None:
        self.owners: dict[int, str] = {}
        self._weights = weights
        self._costs = costs
        self._load = dict.fromkeys(weights, 0.0)

    def give(self, broker: int, name: str) -> None:
        before = self.owners.get(broker)
        if before is not None:
            self._load[before] -= self._costs[broker]
        self.owners[broker] = name
        self._load[name] += self._costs[broker]

    def with_more(self, name: str, cost: float) -> float:
        """Return the relative load of an instance with ``cost`` added."""
        return (self._load[name] + cost) / self._weights[name]

    def improve(self, takers: Collection[str]) -> bool:
        """Move the broker whose move to one of ``takers`` brings most, if that is enough."""
        top = max(sorted(self._weights), key=lambda name: self.with_more(name, 0.0))
        least = self.with_more(top, 0.0) - HYSTERESIS * sum(self._load.values()) / sum(self._weights.values())
        moves = (
            (max(self.with_more(top, -self._costs[broker]), self.with_more(to, self._costs[broker])), broker, to)
            for broker, owner in self.owners.items()
            if owner == top
            for to in takers
            if to != top
        )
        after, broker, to = min(moves, default=(least, -1, ""))
        if after >= least:
            return False
        self.give(broker, to)
        return True
