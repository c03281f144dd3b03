import numpy as np
import pytest

from analysis.kernel.demand import Arrivals, curve
from tests.analysis.demands import demand_of


def test_sizes_and_rates_come_from_records() -> None:
    demand = demand_of([[100, 0], [300, 0]], [[1, 0], [3, 0]])
    assert demand.request_bytes.tolist() == [100, 1]
    assert demand.peak_bytes_per_s.tolist() == [3000, 1]
    assert demand.in_flight_bytes.tolist() == [10, 0.1]
    assert demand.total_bytes.tolist() == [400, 0]
    assert demand.active_s.tolist() == [2, 0]


def test_selected_units_keep_their_demand_in_given_order() -> None:
    demand = demand_of([[1, 2, 3]], [[1, 1, 1]]).only(np.array([2, 0]))
    assert demand.total_bytes.tolist() == [3, 1]
    assert demand.peak_bytes_per_s.tolist() == [30, 10]


SENT = np.array([[10.0, 0.0], [0.0, 4.0], [0.0, 0.0], [30.0, 4.0]])


def test_arrival_time_of_each_byte_is_interpolated() -> None:
    arrivals = Arrivals(demand_of(SENT, SENT))
    units = np.array([1, 1, 1, 0, 0, 0, 1])
    amounts = np.array([1.0, 4.0, 5.0, 5.0, 10.0, 25.0, 8.0])
    assert arrivals.time_s(units, 0, amounts).tolist() == pytest.approx([1.25, 2, 3.25, 0.5, 1, 3.5, 4])
    assert arrivals.time_s(units[:2], 2, amounts[:2] - 2).tolist() == pytest.approx([1.75, 3.5])


def test_curve_of_selected_seconds_matches_dense_curve() -> None:
    arrivals = Arrivals(demand_of(SENT, SENT))
    for start, seconds in ((-3, 5), (0, 4), (1, 2), (3, 4)):
        padded = np.concatenate((np.zeros((3, 2)), SENT, np.zeros((4, 2))))[start + 3 : start + 3 + seconds]
        assert (arrivals.points(np.array([1, 0]), start, seconds) == curve(padded[:, ::-1])).all()


def test_surges_list_units_over_the_limit_by_slab() -> None:
    sent = np.zeros((200, 2))
    sent[[5, 9, 70, 130], 0] = 10, 20, 5, 50
    sent[150, 1] = 9
    found = Arrivals(demand_of(sent, sent)).surges(11, 64, np.array([4.0, 8.0]))
    assert {slab: (unit.tolist(), most.round().tolist()) for slab, (unit, most) in found.items()} == {
        0: ([0], [30]),
        1: ([0], [5]),
        2: ([0, 1], [50, 9]),
    }
    assert list(found) == sorted(found)
    assert Arrivals(demand_of(sent, sent)).surges(11, 64, np.full(2, 60.0)) == {}
