"""Attackers of a few networks take all places that they get, and renew them; newcomers of other networks come now and
then. No newcomer is refused, or made room of: the real classes, under a clock that the simulation moves.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from proxy.edge.connection_slots import GRACE_S, ConnectionSlot, ConnectionSlots
from proxy.edge.stats import Refused

RATE_PER_S = 82
ASKS_AFTER_S, STAYS_S = 0.2, 8.0
DEADLINE_S = 30.0


@dataclass
class Simulation:
    """``speaks``: attackers send a request, so that their connections stay for good."""

    slots: ConnectionSlots
    attackers: int
    behind_balancer: bool = False
    speaks: bool = False
    now_s: float = 100.0
    refused: int = 0
    closed: int = 0
    came: int = 0
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)

    def _later(self, delay_s: float, call: Callable[[], None]) -> None:
        self._events.append((self.now_s + delay_s, len(self._events), call))

    def enter(self, host: str, evicted: Callable[[], None]) -> ConnectionSlot | None:
        """Take a place; behind a balancer the address is known only then."""
        try:
            if self.behind_balancer:
                self.slots.enter("", 1, self.now_s, lambda _: evicted()).descriptor_closed()
            return self.slots.enter(host, 1, self.now_s, lambda _: evicted())
        except Refused:
            return None

    def attack(self, number: int) -> None:
        slot = self.enter(f"198.51.100.{number % self.attackers}", lambda: None)
        if slot is not None and self.speaks:
            self.slots.settle(slot)
        elif slot is not None:
            self._later(DEADLINE_S, slot.descriptor_closed)

    def newcomer(self, host: str) -> None:
        self.came += 1
        slot = self.enter(host, self._made_room)
        if slot is None:
            self.refused += 1
            return
        self._later(ASKS_AFTER_S, lambda: self.slots.settle(slot) if slot.open_descriptors else None)
        self._later(STAYS_S, slot.descriptor_closed)

    def _made_room(self) -> None:
        self.closed += 1

    def run(self, seconds: float, newcomers_per_s: float = 4.0, burst: int = 0) -> None:
        for number in range(burst):
            self.attack(number)
        steps = int(seconds * RATE_PER_S)
        for step in range(steps):
            self.now_s += 1 / RATE_PER_S
            due = [event for event in self._events if event[0] <= self.now_s]
            self._events = [event for event in self._events if event[0] > self.now_s]
            for _, _, call in sorted(due, key=lambda event: event[:2]):
                call()
            self.attack(step)
            if int(step * newcomers_per_s / RATE_PER_S) != int((step + 1) * newcomers_per_s / RATE_PER_S):
                self.newcomer(f"203.0.{step >> 8}.{step & 255}")
            if step % RATE_PER_S == 0:
                self.slots.tidy(self.now_s)


def places(most: int, before_request: int = 1000, most_of_ip: int | None = None) -> ConnectionSlots:
    return ConnectionSlots(most=most, most_of_ip=most_of_ip, overrides={}, most_before_request=before_request)


@pytest.mark.parametrize("behind_balancer", [False, True], ids=["direct", "behind a balancer"])
@pytest.mark.parametrize("speaks", [False, True], ids=["silent", "with a request"])
@pytest.mark.parametrize("attackers", [1, 2, 8])
@pytest.mark.parametrize(("most", "before_request"), [(400, 1000), (400, 100), (4000, 1000), (4000, 4000)])
def test_newcomer_always_gets_a_place(
    most: int, before_request: int, attackers: int, speaks: bool, behind_balancer: bool
) -> None:
    there = Simulation(places(most, before_request), attackers, behind_balancer, speaks)
    there.run(40.0, burst=most)
    assert (there.came > 150, there.refused, there.closed) == (True, 0, 0)


def test_newcomers_that_are_silent_for_a_moment_are_not_made_room_of_by_a_storm_of_their_like() -> None:
    """After a restart all clients come at once, some from the same network: each has its grace."""
    there = places(1000, before_request=100)
    closed: list[Refused] = []
    for number in range(900):
        there.enter(f"10.0.{number // 3}.1", 1, 1.0, closed.append)
        there.tidy(1.0)
    assert closed == []
    assert there.before_request == 900


@pytest.mark.parametrize("behind_balancer", [False, True], ids=["direct", "behind a balancer"])
@pytest.mark.parametrize("networks", [1, 13, 390])
def test_limit_before_the_first_request_is_kept_without_newcomers(networks: int, behind_balancer: bool) -> None:
    there = Simulation(places(1000, before_request=100, most_of_ip=1000), networks, behind_balancer)
    there.attackers = networks
    for number in range(390):
        there.enter(f"198.51.{number % networks}.7", lambda: None)
    assert there.slots.before_request <= 390
    for second in range(1, 9):
        there.slots.tidy(there.now_s + second)
    assert there.slots.before_request == 100


def test_a_network_that_has_no_more_than_its_part_keeps_its_grace() -> None:
    there = places(4)
    closed: list[str] = []
    for host in ("10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.3"):
        there.enter(host, 1, 1.0, lambda _, host=host: closed.append(host))  # type: ignore[misc]  # a default
    there.enter("10.0.0.4", 1, 1.0, lambda _: None)
    assert closed == ["10.0.0.1"], "which had two"
    with pytest.raises(Refused):
        there.enter("10.0.0.5", 1, 1.0, lambda _: None)
    there.enter("10.0.0.5", 1, 1.0 + GRACE_S, lambda _: None)
    assert closed == ["10.0.0.1", "10.0.0.2"]
