import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.kernel.demand import Arrivals, Demand, curve, gain, surge_bytes


def test_what_is_recorded() -> None:
    demand = Demand.recorded([[100, 0], [300, 0]], [[1, 0], [3, 0]])
    assert demand.sent_bytes.tolist() == [[100, 0], [300, 0]]
    assert demand.request_bytes.tolist() == [100, 1]
    assert demand.peak_bytes_per_s.tolist() == [3000, 1]
    assert demand.in_flight_bytes.tolist() == [10, 0.1]


def test_some_units_in_another_order() -> None:
    demand = Demand.recorded([[1, 2, 3]], [[1, 1, 1]]).only(np.array([2, 0]))
    assert demand.sent_bytes.tolist() == [[3, 1]]
    assert demand.peak_bytes_per_s.tolist() == [30, 10]


@pytest.mark.parametrize(
    ("sent", "requests", "problem"),
    [
        ([[1.0]], [[1.0, 2.0]], r"not \(1, 1\), \(1, 2\)"),
        ([1.0], [1.0], "second, unit"),
        ([[-1.0]], [[1.0]], "bytes must be finite"),
        ([[1.0]], [[np.nan]], "requests must be finite"),
        ([[1.0]], [[np.inf]], "requests must be finite"),
    ],
)
def test_columns_that_are_no_demand(sent: list[list[float]], requests: list[list[float]], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Demand.recorded(sent, requests)


@given(st.lists(st.integers(0, 1000), max_size=40), st.sampled_from([1.0, 2.0, 2.5, 5.5, 11.0, 12.0]))
def test_the_gain_within_a_window(amounts: list[int], window_s: float) -> None:
    values = np.array(amounts, dtype=float)[:, None]
    whole, part = int(window_s), window_s % 1

    def plain(point: int) -> float:
        older = point - whole - 1
        return sum(amounts[max(point - whole, 0) : point]) + (part * amounts[older] if older >= 0 else 0)

    expected = [plain(point) for point in range(len(amounts) + 1)]
    assert gain(curve(values), window_s)[:, 0].tolist() == pytest.approx(expected)
    assert surge_bytes(values, window_s)[0] == pytest.approx(max(expected))


def test_when_bytes_arrived() -> None:
    arrived = curve(np.array([[10.0, 0.0], [0.0, 4.0], [0.0, 0.0], [30.0, 4.0]]))
    arrivals = Arrivals(arrived, np.array([1, 0, 1]))
    columns = np.array([0, 0, 0, 1, 1, 1, 2])
    amounts = np.array([1.0, 4.0, 5.0, 5.0, 10.0, 25.0, 8.0])
    assert arrivals.point_of(columns, amounts).tolist() == pytest.approx([1.25, 2, 3.25, 0.5, 1, 3.5, 4])
