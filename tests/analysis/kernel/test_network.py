"""Flows under several counters: beside the model of one counter, and what must hold whoever shares what."""

import numpy as np
import pytest

from analysis.kernel.demand import Demand
from analysis.kernel.fluid import replay
from analysis.kernel.histogram import Floats
from analysis.kernel.network import Network, replay_together
from analysis.kernel.outcome import Outcome
from tests.analysis.workloads import workloads

SECONDS = 600
MB = 1e6
REQUEST = 20_000.0


def demand_of(*flows: Floats) -> Demand:
    sent = np.array(flows).T
    return Demand.recorded(sent, np.ceil(sent / REQUEST))


def network(*counters: tuple[int, ...], weight: tuple[float, ...] | None = None) -> Network:
    """``counters`` are those of each flow, -1 for none."""
    levels = np.array(counters, dtype=np.intp).T
    count = int(levels.max()) + 1
    return Network(levels, np.full(count, REQUEST), np.array(weight or np.ones(levels.shape[1])))


def same(found: Outcome, alone: Outcome, counter: int, unit: int) -> None:
    for name in ("sent_bytes", "throttled_s", "throttled_most_s", "episodes", "waiting_bytes", "peak_waiting_bytes"):
        assert getattr(found, name)[:, counter] == pytest.approx(getattr(alone, name)[:, unit], rel=3e-3), name
    assert found.delay_s(0.99)[:, counter] == pytest.approx(alone.delay_s(0.99)[:, unit], rel=3e-3)
    assert found.throttle_s(0.99)[:, counter] == pytest.approx(alone.throttle_s(0.99)[:, unit], rel=3e-3)


@pytest.mark.parametrize("quota_holds", [True, False])
def test_one_flow_under_two_counters_is_held_by_the_stricter_as_by_that_one_alone(quota_holds: bool) -> None:
    """A cap throttles whom it has held; a quota, which has one client, also while nothing more is sent."""
    for sent in (each for name, each in workloads(SECONDS).items() if name in {"steady", "tides"}):
        demand = demand_of(sent)
        strict, wide = np.array([[0.8 * MB], [1.1 * MB]]), np.full((2, 1), 5 * MB)
        limits = np.hstack((strict, wide) if quota_holds else (wide, strict))
        found, alone = replay_together(demand, network((0, 1)), limits), replay(demand, strict)
        same(found, alone, 0, 0)
        assert found.throttled_s[:, 1] == pytest.approx(0 if quota_holds else alone.throttled_s[:, 0])
        assert found.held_s is not None
        assert found.held_s[:, int(quota_holds), 0].sum() == 0


def test_two_under_one_cap_have_it_together_and_what_one_leaves_the_other_has() -> None:
    steady = np.full(SECONDS, MB)
    small = np.full(SECONDS, 0.2 * MB)
    found = replay_together(demand_of(steady, small), network((0, 2), (1, 2)), np.array([[np.inf, np.inf, 0.6 * MB]]))
    alone = replay(demand_of(steady + small), [0.6 * MB])
    assert found.sent_bytes[0, 2] == pytest.approx(alone.sent_bytes[0, 0], rel=0.01)
    assert found.sent_bytes[0, 1] == pytest.approx(small.sum(), rel=0.02), "less than half of the cap"
    assert found.sent_bytes[0, 0] == pytest.approx(alone.sent_bytes[0, 0] - small.sum(), rel=0.02)
    assert (found.throttled_s[0] > 0.9 * SECONDS).all(), "both wait for the same counter"


def test_who_waits_on_more_connections_has_more_of_a_cap() -> None:
    steady = np.full(SECONDS, 2 * MB)
    found = replay_together(
        demand_of(steady, steady), network((0, 2), (1, 2), weight=(3, 1)), np.array([[np.inf, np.inf, MB]])
    )
    assert found.sent_bytes[0, 0] == pytest.approx(3 * found.sent_bytes[0, 1], rel=0.1)


def test_a_quota_and_a_cap_hold_at_once() -> None:
    """Erin has 0.3 of her own; frank, under the cap alone, has what she leaves of it."""
    steady = np.full(SECONDS, MB)
    found = replay_together(demand_of(steady, steady), network((0, 2), (1, 2)), np.array([[0.3 * MB, np.inf, MB]]))
    erin, frank, tenant = (found.sent_bytes[0] / SECONDS / MB).tolist()
    assert (erin, frank, tenant) == pytest.approx((0.3, 0.7, 1.0), rel=0.05)


def test_twenty_under_one_cap_and_one_who_is_idle() -> None:
    flows = [np.full(SECONDS, 0.1 * MB)] * 20
    idle = np.zeros(SECONDS)
    idle[0] = 10.0
    counters = [(number, 21) for number in range(21)]
    limits = np.append(np.full(21, np.inf), MB)[None]
    found = replay_together(demand_of(*flows, idle), network(*counters), limits)
    assert found.sent_bytes[0, 21] <= (SECONDS + 11) * MB * 1.02
    assert found.sent_bytes[0, :20] == pytest.approx(np.full(20, found.sent_bytes[0, 21] / 20), rel=0.01)
    assert found.throttled_s[0, 20] == 0, "it sent nothing while the cap was in debt"
    assert found.demand_bytes[0] == pytest.approx((found.sent_bytes + found.waiting_bytes)[0])


def test_crossing_caps_let_no_more_pass_than_each_allows() -> None:
    rng = np.random.default_rng(3)
    flows = [rng.gamma(2, 0.2 * MB, SECONDS) for _ in range(6)]
    counters = [(number, 6 + number % 2, 8 + number % 3) for number in range(6)]
    limits = np.concatenate((np.full(6, 0.9 * MB), np.full(2, 0.7 * MB), np.full(3, 0.5 * MB)))
    found = replay_together(demand_of(*flows), network(*counters), limits[None])
    assert (found.sent_bytes[0] <= limits * (SECONDS + 11) * 1.02 + 20 * REQUEST).all()
    # Nobody is left out, and caps that cross let pass nearly what they could.
    assert found.sent_bytes[0, :6].min() > 0.1 * found.sent_bytes[0, :6].max()
    assert found.sent_bytes[0, 6:8].sum() > 0.9 * min(limits[6:8].sum(), limits[8:].sum()) * SECONDS


def test_a_period_in_pieces_is_the_same_period() -> None:
    flows = [np.full(SECONDS, 0.5 * MB), np.where(np.arange(SECONDS) % 50 < 10, 2 * MB, 0)]
    demand, shared = demand_of(*flows), network((0, 2), (1, 2))
    limits = np.array([[0.4 * MB, np.inf, 0.7 * MB], [np.inf, np.inf, np.inf]])
    whole = replay_together(demand, shared, limits)
    parts: Outcome | None = None
    for begin in range(0, SECONDS, 150):
        part = Demand(demand.sent_bytes[begin : begin + 150], demand.request_bytes, demand.peak_bytes_per_s)
        carry = None if parts is None else parts.carry
        found = replay_together(part, shared, limits, before=carry, more=begin + 150 < SECONDS)
        parts = found if parts is None else parts.then(found)
    assert parts is not None
    for name in ("sent_bytes", "throttled_s", "waiting_bytes", "held_s"):
        assert getattr(parts, name) == pytest.approx(getattr(whole, name), rel=1e-6, abs=1), name
    assert whole.throttled_s[1].tolist() == [0, 0, 0]
