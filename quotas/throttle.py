"""Throttle time of an observed rate: QuotaUtils.throttleTime, to the last millisecond."""

import math
from typing import Final, Protocol, Self, TypeVar

INT32_MAX: Final = 2**31 - 1
"""throttle_time_ms is an int32. Kafka wraps beyond it, possibly to "no throttle" (24.8 days); Sluice saturates."""

_LONG_MAX: Final = 2**63 - 1
_LONG_MIN: Final = -(2**63)


class Amount(Protocol):
    """A number, or an array of numbers: the analysis computes all clients at once."""

    def __sub__(self, other: Self, /) -> Self: ...
    def __mul__(self, other: float, /) -> Self: ...
    def __truediv__(self, other: Self, /) -> Self: ...


A = TypeVar("A", bound=Amount)


def excess(observed: A, limit: A, window: float) -> A:
    """Return how long it takes until ``observed``, measured over ``window``, has fallen to ``limit``: Kafka's formula.

    In the unit of ``window``, not rounded, and negative below the limit.
    """
    # (O - T) / T * W in this order: any other differs in the last millisecond. It is S / T - W, with S = O * W.
    return (observed - limit) / limit * window


def math_round(value: float) -> int:
    """Java's Math.round: to the nearest, ties towards +infinity, NaN to 0, saturating at 64 bits."""
    if math.isnan(value):
        return 0
    if value >= _LONG_MAX:
        return _LONG_MAX
    if value <= _LONG_MIN:
        return _LONG_MIN
    whole = math.floor(value)
    # Not floor(value + 0.5): that sum rounds 0.49999999999999994 up to 1.
    return whole + 1 if value - whole >= 0.5 else whole


def throttle_ms(observed: float, limit: float, window_ms: int, cap_ms: int | None = None) -> int:
    """Return the milliseconds until ``observed``, measured over ``window_ms``, has fallen to ``limit``.

    A signed 64-bit number, as in Kafka before its conversion to int32; ``cap_ms`` is an upper bound.
    """
    raw_ms = excess(observed, limit, window_ms) if limit else divide(observed, limit) * window_ms
    raw = math_round(raw_ms)
    return raw if cap_ms is None else min(raw, cap_ms)


def divide(dividend: float, divisor: float) -> float:
    """Divide as IEEE 754 and Java do, including by zero."""
    if divisor != 0:
        return dividend / divisor
    return math.nan if dividend == 0 else math.copysign(math.inf, dividend)


def clamp_ms(raw_ms: int) -> int:
    """Clamp a throttle time to the wire format: 0 to 2^31 - 1."""
    return max(0, min(raw_ms, INT32_MAX))
