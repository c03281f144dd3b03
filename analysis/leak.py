"""What passes a quota in the long run: Kafka's leaks, by the requests of the connections that are not muted yet."""

from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from analysis.histogram import Floats

_UNLIMITED: Final = 1e300
"""An infinite quota, without its infinities."""


def leaking(limit: Floats, others_bytes: Floats, window_s: float) -> Floats:
    """Return the bytes per second that pass under steady overload; ``others_bytes`` are those of all but one.

    Twelve connections with requests of 1 MB at 0.7 MB/s pass 1.8 times that.
    """
    return np.asarray(limit / 2 * (1 + np.sqrt(1 + 4 * others_bytes / (window_s * limit))))


def limits_of(limits: ArrayLike, units: int) -> Floats:
    """Return limits as [scenario, unit], infinite or NaN as a very large one.

    Raises ValueError for another shape, and for limits that are not above 0.
    """
    array = np.atleast_2d(np.asarray(limits, dtype=float))
    if array.ndim != 2 or array.shape[1] != units:
        raise ValueError(f"limits of [scenario, unit] with {units} units are needed, not {array.shape}")
    if (array <= 0).any():
        raise ValueError("a limit must be above 0; infinite is none")
    return np.where(np.isfinite(array), array, _UNLIMITED)
