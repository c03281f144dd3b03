"""Owners of brokers, chosen by load with few moves. Any leader computes the same from the messages of all members."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from proxy.owners.messages import MemberMessage

HYSTERESIS: Final = 0.25
"""A broker moves only if the busiest instance then has less load by this share of the mean."""
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
    return share_out(weights, claims, load, {*brokers, *claims})


def share_out(
    weights: Mapping[str, float], claims: Mapping[int, str], load: Mapping[int, float], brokers: Collection[int]
) -> dict[int, str]:
    """Return the owner of each broker, by name of those in ``weights``: the heaviest brokers are given first, and one
    that is claimed moves only if that brings enough.
    """
    known = sorted(brokers)
    usual = sum(load.values()) / len(load) if load and sum(load.values()) > 0 else 1.0
    costs = {broker: max(load.get(broker, usual), usual * _LEAST_SHARE) for broker in known}
    shares = _Shares(weights, costs)
    for broker in known:
        if claims.get(broker) in weights:
            shares.give(broker, claims[broker])
    for broker in sorted(set(known) - shares.owners.keys(), key=lambda broker: (-costs[broker], broker)):
        shares.give(broker, min(weights, key=lambda name: (shares.with_more(name, costs[broker]), name)))
    while shares.improve():
        pass
    return shares.owners


class _Shares:
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

    def improve(self) -> bool:
        """Move the broker whose move brings most, if that is enough."""
        top = max(sorted(self._weights), key=lambda name: self.with_more(name, 0.0))
        least = self.with_more(top, 0.0) - HYSTERESIS * sum(self._load.values()) / sum(self._weights.values())
        moves = (
            (max(self.with_more(top, -self._costs[broker]), self.with_more(to, self._costs[broker])), broker, to)
            for broker, owner in self.owners.items()
            if owner == top
            for to in self._weights
            if to != top
        )
        after, broker, to = min(moves, default=(least, -1, ""))
        if after >= least:
            return False
        self.give(broker, to)
        return True
