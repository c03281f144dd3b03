"""What units want to send, by the second, and its curves: the sums of all that has arrived.

A unit is whoever shares one counter on a broker (``analysis.kernel.units``). A curve has points, one more than seconds:
point 0 is the beginning of the first second, point t + 1 the end of second t.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from analysis.kernel.histogram import Floats

Indices = NDArray[np.intp]
Bools = NDArray[np.bool_]

_IN_FLIGHT: Final = 0.1
"""Of a request: none overtakes another in the line of its counter, yet a request is not infinitely small."""
_FASTER: Final = 10
"""How much faster a client sends for a moment than in any whole second. Between 5 and 30 agreement is the same."""


@dataclass(frozen=True, slots=True)
class Demand:
    """``sent_bytes`` is [second, unit], all else [unit]. No second has more than ``peak_bytes_per_s``."""

    sent_bytes: Floats
    request_bytes: Floats
    peak_bytes_per_s: Floats

    @classmethod
    def recorded(cls, sent_bytes: ArrayLike, requests: ArrayLike) -> "Demand":
        """Take columns of usage records, each [second, unit], as demand.

        The size of a request is their mean, the peak rate is ten times the most of any second. Raises ValueError where
        shapes differ or a number is negative or not finite.
        """
        sent, counts = (np.asarray(values, dtype=float) for values in (sent_bytes, requests))
        if sent.shape != counts.shape or sent.ndim != 2:
            raise ValueError(f"columns of [second, unit] are needed, not {sent.shape}, {counts.shape}")
        for name, values in (("bytes", sent), ("requests", counts)):
            if not (np.isfinite(values) & (values >= 0)).all():
                raise ValueError(f"{name} must be finite and not negative")
        total = sent.sum(axis=0)
        request_bytes = total / np.maximum(counts.sum(axis=0), 1)
        peak = _FASTER * sent.max(axis=0, initial=0)
        return cls(sent, np.maximum(request_bytes, 1), np.maximum(peak, 1))

    @property
    def in_flight_bytes(self) -> Floats:
        """What is under way while a throttle is asked for."""
        return _IN_FLIGHT * self.request_bytes

    def only(self, units: Indices) -> "Demand":
        """Return the demand of some units, in their order."""
        return Demand(self.sent_bytes[:, units], self.request_bytes[units], self.peak_bytes_per_s[units])


def surge_bytes(sent_bytes: Floats, window_s: float) -> Floats:
    """Return the most bytes of each unit in any ``window_s`` seconds: above W·T it is throttled, otherwise never.

    ``sent_bytes`` is [second, unit]. That holds for the closed loop too: until its first throttle it is open.
    """
    return surge(curve(sent_bytes), window_s)


def surge(points: Floats, window_s: float) -> Floats:
    """Return the most that a curve of [point, unit] gains in any ``window_s`` seconds."""
    return np.asarray(gain(points, window_s).max(axis=0))


def curve(values: Floats) -> Floats:
    """Return the sums of values of [second, ...] at every point."""
    points = np.empty((len(values) + 1, *values.shape[1:]))
    points[0] = 0
    for second, value in enumerate(values):  # a third of the time of cumsum along the first axis
        np.add(points[second], value, out=points[second + 1])
    return points


def gain(points: Floats, window_s: float) -> Floats:
    """Return what a curve has gained in the window before each of its points; before it began it was flat."""
    whole = int(window_s)
    part = window_s - whole
    kept = max(len(points) - whole, 0)
    gained = points - points[0]
    gained[whole:] = points[whole:] - points[:kept]
    if part:
        gained[whole + 1 :] += part * (points[1:kept] - points[: max(kept - 1, 0)])
    return np.asarray(gained)


class Arrivals:
    """When bytes arrived, by the curve of their column: found by bisection, for any number at once."""

    def __init__(self, arrived: Floats, unit: Indices) -> None:
        """``arrived`` is a curve of [point, unit], ``unit`` the unit of each column."""
        used, self._rank = np.unique(unit, return_inverse=True)
        self._points = len(arrived)
        # One ascending row of keys for all units: the number of the unit, and the share that had arrived.
        total = np.maximum(arrived[-1], 1)
        self._total = total[unit]
        self._keys = ((arrived[:, used] / total[used]).T + np.arange(len(used))[:, None]).ravel()

    def point_of(self, columns: Indices, amounts: Floats) -> Floats:
        """Return the point (with a fraction: evenly within a second) at which the curve reaches each amount.

        Five times as fast where ``columns`` ascend, and the amounts of each.
        """
        rank = self._rank[columns]
        wanted = rank + amounts / self._total[columns]
        first = rank * self._points
        after = np.clip(np.searchsorted(self._keys, wanted), first + 1, first + self._points - 1)
        low = self._keys[after - 1]
        width = self._keys[after] - low
        part = np.divide(wanted - low, width, out=np.zeros_like(low), where=width > 0)
        return np.asarray(after - 1 - first + np.clip(part, 0, 1))
