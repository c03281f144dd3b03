"""Flows under several counters against every request of their clients, charged to the Rates of all of them.

``GRID`` cases are drawn: two to five clients of 1 to 8 connections, with quotas that are tight or loose or without,
under one cap or two, which together want 0.9 to 4 times what the wide one allows, steadily or not.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pytest

from analysis.kernel.demand import Demand
from analysis.kernel.histogram import Floats
from analysis.kernel.network import Network, replay_together
from analysis.kernel.outcome import Outcome
from tests.reference.request_level import Shape
from tests.reference.together import Client, Together, run_together

GRID: Final = 24
WANT_S: Final = 90
SECONDS: Final = 180
PIECE_S: Final = 5
ANSWER_S: Final = 0.003
WIRE_BYTES_PER_S: Final = 20e6
_SHAPES: Final = ("steady", "short", "bursts", "on and off")


@dataclass(frozen=True, slots=True)
class Case:
    """``limits`` are of a quota for each client, then of caps; ``counters`` are those of each client, -1 for none."""

    clients: list[Client]
    limits: list[float | None]
    counters: list[tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Cell:
    """A counter: what was true of it, and what the model says."""

    is_cap: bool
    wanted_bytes: float
    throttled_s: tuple[float, float]
    sent_bytes: tuple[Floats, Floats]
    """By pieces of PIECE_S."""

    @property
    def off_s(self) -> float:
        return self.throttled_s[1] - self.throttled_s[0]

    @property
    def course(self) -> float:
        """How much of what was wanted had gone too early or too late, at the most."""
        real, model = (np.cumsum(each) for each in self.sent_bytes)
        return float(np.abs(real - model).max() / self.wanted_bytes)

    @property
    def done_s(self) -> tuple[int, int]:
        """When nearly all of it had gone, SECONDS where it never had."""
        real, model = (np.cumsum(each) < 0.98 * self.wanted_bytes for each in self.sent_bytes)
        return int(real.sum()) * PIECE_S, int(model.sum()) * PIECE_S


def demand_of(shape: str, rate: float, rng: np.random.Generator) -> list[float]:
    second = np.arange(SECONDS)
    noise = rng.gamma(50, 1 / 50, SECONDS)
    share = {
        "steady": noise * (second < WANT_S),
        "short": 3 * noise * (second < WANT_S / 3),
        "bursts": np.where(rng.random(SECONDS) < 0.08, 12 * noise, 0.05) * (second < WANT_S),
        "on and off": 3 * noise * (second // 15 % 3 == rng.integers(3)) * (second < WANT_S),
    }[shape]
    found: list[float] = (rate * share).tolist()
    return found


def client_of(demand: list[float], size: int, counters: tuple[int, ...], connections: int) -> Client:
    peak = connections * size / (ANSWER_S + size / WIRE_BYTES_PER_S)
    return Client(demand, Shape(size, peak), tuple(each for each in counters if each >= 0), connections)


def drawn(rng: np.random.Generator) -> Case:
    cap = float(np.exp(rng.uniform(np.log(30e3), np.log(1e6))))
    count = int(rng.integers(2, 6))
    load = float(np.exp(rng.uniform(np.log(0.9), np.log(4))))
    parts = rng.dirichlet(np.full(count, 3.0)) * cap * load
    nested = int(rng.integers(count)) if rng.random() < 0.4 else 0
    counters: list[tuple[int, ...]] = [(each, count if each < nested else -1, count + 1) for each in range(count)]
    limits: list[float | None] = [None] * count
    clients = []
    for number, part in enumerate(parts.tolist()):
        # Up to a quarter of what the cap lets go in a second; not so small that there are too many to simulate.
        size = int(np.clip(np.exp(rng.uniform(np.log(2e3), np.log(100e3))), cap * load / 120, cap / 4))
        if (kind := rng.choice(("none", "tight", "loose"))) != "none":
            limits[number] = max(cap * rng.uniform(*((0.08, 0.5) if kind == "tight" else (0.8, 1.5))), 2.0 * size)
        demand = demand_of(str(rng.choice(_SHAPES)), part, rng)
        clients.append(client_of(demand, size, counters[number], int(rng.integers(1, 9))))
    return Case(clients, [*limits, cap * rng.uniform(0.4, 0.8), cap], counters)


def modelled(case: Case) -> tuple[Outcome, Floats]:
    """Return what the model says, and what it lets pass of each counter by pieces."""
    sent = np.array([client.demand_bytes for client in case.clients]).T
    demand = Demand.recorded(sent, sent / [client.shape.request_bytes for client in case.clients])
    connections = np.array([client.connections for client in case.clients])
    levels = np.array(case.counters).T
    sizes = [demand.request_bytes[(levels == each).any(axis=0)] for each in range(len(case.limits))]
    request = np.array([each.mean() if len(each) else 1.0 for each in sizes])
    network = Network(levels, request, connections * demand.request_bytes)
    limits = np.array([[np.inf if limit is None else limit for limit in case.limits]])
    whole: Outcome | None = None
    pieces = []
    for begin in range(0, SECONDS, PIECE_S):
        part = Demand(sent[begin : begin + PIECE_S], demand.request_bytes, demand.peak_bytes_per_s)
        carry = None if whole is None else whole.carry
        found = replay_together(part, network, limits, before=carry, more=True)
        pieces.append(found.sent_bytes[0])
        whole = found if whole is None else whole.then(found)
    assert whole is not None
    return whole, np.array(pieces).T


def cells_of(case: Case) -> list[Cell]:
    real: Together = run_together(case.clients, case.limits, seconds=SECONDS)
    model, pieces = modelled(case)
    served = np.array([met.served_bytes for met in real.clients])
    wanted = np.array([sum(client.demand_bytes) for client in case.clients])
    cells = []
    for counter in range(len(case.limits)):
        members = [number for number, client in enumerate(case.clients) if counter in client.counters]
        if not members:
            continue
        is_cap = counter >= len(case.clients)
        held_s = sum(real.in_debt_s[counter] if is_cap else real.clients[counter].muted_s)
        passed = served[members].sum(axis=0).reshape(-1, PIECE_S).sum(axis=1)
        throttled_s = (held_s, float(model.throttled_s[0, counter]))
        cells.append(Cell(is_cap, wanted[members].sum(), throttled_s, (passed, pieces[counter])))
    return cells


@pytest.fixture(scope="module")
def cells() -> list[Cell]:
    rng = np.random.default_rng(7)
    return [cell for _ in range(GRID) for cell in cells_of(drawn(rng))]


def test_who_is_throttled_at_all(cells: list[Cell]) -> None:
    assert np.mean([(cell.throttled_s[0] > 0) == (cell.throttled_s[1] > 0) for cell in cells]) >= 0.97


@pytest.mark.parametrize(("is_cap", "mean", "most"), [(False, 0.024, 0.14), (True, 0.018, 0.16)])
def test_for_how_much_of_the_time(cells: list[Cell], is_cap: bool, mean: float, most: float) -> None:
    off = np.abs([cell.off_s for cell in cells if cell.is_cap == is_cap]) / SECONDS
    assert off.mean() < mean
    assert off.max() < most


def test_how_much_passes(cells: list[Cell]) -> None:
    sent = np.array([[each.sum() for each in cell.sent_bytes] for cell in cells])
    off = np.abs(sent[:, 1] / sent[:, 0] - 1)
    assert np.median(off) < 0.006
    assert off.mean() < 0.02
    assert off.max() < 0.2


def test_when_it_passes_and_when_each_is_done(cells: list[Cell]) -> None:
    course = np.array([cell.course for cell in cells])
    assert course.mean() < 0.056
    assert course.max() < 0.2
    late_s = np.abs([real - model for real, model in (cell.done_s for cell in cells if not cell.is_cap)])
    assert late_s.mean() < 3
    assert late_s.max() <= 3 * PIECE_S


def test_who_is_held_by_a_quota_of_his_own_has_fewer_turns_under_a_cap() -> None:
    """What is freed of the cap goes at once, while most of alice's requests still wait for her quota."""
    found = []
    for phase in np.linspace(0, 0.9, 8):
        clients = []
        for want, counters, late in ((60e3, (0, 2), phase), (40e3, (1, 2), 3 * phase % 1)):
            demand = [want * (1 - late)] + [want] * 29 + [want * late] + [0.0] * (SECONDS - 31)
            clients.append(client_of(demand, 2055, counters, 2))
        found.append([cell.off_s for cell in cells_of(Case(clients, [12e3, None, 30e3], [(0, 2), (1, 2)]))])
    alice, bob, cap = np.abs(found).T
    assert alice.mean() < 2.5
    assert bob.max() < 2
    assert cap.max() < 2


def test_turns_are_those_of_connections_where_a_cap_alone_holds() -> None:
    clients = [client_of([50e3] * 60 + [0.0] * (SECONDS - 60), 2000, (each, 2), 3 - 2 * each) for each in range(2)]
    three, one, cap = cells_of(Case(clients, [None, None, 30e3], [(0, 2), (1, 2)]))
    for cell in (three, one):
        real, model = (np.cumsum(each)[60 // PIECE_S] for each in cell.sent_bytes)
        assert model == pytest.approx(real, rel=0.05)
    assert abs(cap.off_s) < 4
