import math
from decimal import ROUND_FLOOR, Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotas.throttle import INT32_MAX, clamp_ms, divide, excess, math_round, throttle_ms


@given(st.floats(-1e18, 1e18))
def test_math_round_is_floor_of_value_plus_one_half_without_its_rounding_error(value: float) -> None:
    assert math_round(value) == int((Decimal(value) + Decimal("0.5")).to_integral_value(ROUND_FLOOR))


@pytest.mark.parametrize(
    ("value", "rounded"),
    [
        (0.5, 1),
        (-0.5, 0),
        (2.5, 3),
        (-2.5, -2),
        (0.49999999999999994, 0),
        (math.nan, 0),
        (math.inf, 2**63 - 1),
        (-math.inf, -(2**63)),
        (1e300, 2**63 - 1),
    ],
)
def test_math_round_rounds_as_in_java(value: float, rounded: int) -> None:
    assert math_round(value) == rounded


@pytest.mark.parametrize(
    ("observed", "limit", "cap_ms", "expected"),
    [
        (600.0, 500.0, None, 2000),
        (5.0, 0.0, None, 2**63 - 1),
        (5.0, 0.0, 1000, 1000),
        (0.0, 0.0, 1000, 0),
        (5.0, math.nan, None, 0),
        (5.0, math.inf, None, 0),
    ],
)
def test_throttle_ms_matches_kafkas_formula(observed: float, limit: float, cap_ms: int | None, expected: int) -> None:
    assert throttle_ms(observed, limit, 10_000, cap_ms) == expected


@given(st.floats(0, 1e12), st.floats(1e-3, 1e12), st.integers(1, 20_000))
def test_throttle_formula_equals_total_over_limit_minus_window(total: float, limit: float, window: int) -> None:
    """(O - T) / T * W is S / T - W."""
    assert excess(total / window, limit, window) == pytest.approx(total / limit - window, rel=1e-9, abs=1e-9 * window)


def test_throttle_formula_of_arrays_equals_that_of_numbers() -> None:
    observed, limit = np.array([600.0, 500.0, 1.0]), np.array([500.0, 500.0, 4.0])
    assert excess(observed, limit, 10.0).tolist() == [2.0, 0.0, -7.5]
    assert [excess(o, t, 10.0) for o, t in zip(observed.tolist(), limit.tolist(), strict=True)] == [2.0, 0.0, -7.5]


@given(st.integers())
def test_throttle_time_on_the_wire_is_clamped_to_int32(raw_ms: int) -> None:
    assert clamp_ms(raw_ms) == sorted((0, raw_ms, INT32_MAX))[1]


def test_divide_by_zero_is_infinite_or_nan() -> None:
    assert divide(-1, 0) == -math.inf
    assert math.isnan(divide(0, 0))
    assert divide(1, 4) == 0.25
