"""Arrays by what is in them; docstrings give their shapes, as [second, unit]."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Bools = NDArray[np.bool_]
