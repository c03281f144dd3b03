"""Histograms of times, weighted by bytes.

Bins are logarithmic, 16 to the octave (4.4 % wide), from 1 ms to 2^30 ms (12 days); bin 0 is below 1 ms, counted as 0,
and the last one is open.
"""

from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from analysis.kernel.arrays import Floats, Indices

_LEAST_S: Final = 1e-3
_BINS_PER_OCTAVE: Final = 16
_OCTAVES: Final = 30
BINS: Final = _BINS_PER_OCTAVE * _OCTAVES + 2
EDGES_S: Final[Floats] = np.concatenate(
    ([0.0], _LEAST_S * 2.0 ** (np.arange(_BINS_PER_OCTAVE * _OCTAVES + 1) / _BINS_PER_OCTAVE), [np.inf])
)
"""Bin i holds times from EDGES_S[i] to below EDGES_S[i + 1]."""


def bin_of(times_s: Floats) -> Indices:
    """Return the bin of each time, of any shape."""
    octaves = np.log2(np.maximum(times_s, _LEAST_S / 2) / _LEAST_S)
    return np.asarray(np.clip(np.floor(octaves * _BINS_PER_OCTAVE) + 1, 0, BINS - 1), dtype=np.intp)


def add(histogram: Floats, columns: Indices, times_s: Floats, weights: Floats) -> None:
    """Add times to a histogram of [column, bin], in place; the three arrays are of one length."""
    np.add.at(histogram.reshape(-1), columns * BINS + bin_of(times_s), weights)


def quantile_s(histogram: Floats, share: ArrayLike) -> Floats:
    """Return the time that ``share`` of the weight does not exceed, by interpolation within its bin.

    ``histogram`` is [..., bin]. Returns 0 for an empty one, and the lower edge of the open bin.
    """
    total = np.cumsum(histogram, axis=-1)
    wanted = np.asarray(share) * total[..., -1]
    # The first bin at which the sum reaches the wanted weight; bin 0 of an empty histogram.
    index = np.minimum((total < wanted[..., None]).sum(axis=-1), BINS - 1)
    above = np.take_along_axis(total, index[..., None], -1)[..., 0]
    inside = np.take_along_axis(histogram, index[..., None], -1)[..., 0]
    with np.errstate(invalid="ignore", divide="ignore"):
        part = np.where(inside > 0, 1 - (above - wanted) / inside, 0.0)
    lower = EDGES_S[index]
    upper = np.where(index == BINS - 1, lower, EDGES_S[np.minimum(index + 1, BINS - 1)])
    return np.where(index == 0, 0.0, lower + part * (upper - lower))
