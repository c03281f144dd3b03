"""Limits as a replay takes them."""

from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from analysis.kernel.histogram import Floats

_UNLIMITED: Final = 1e300
"""An infinite quota, without its infinities."""


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
