"""How fast a counter lets requests through that wait in its line: the equation of ``analysis.kernel.fluid``."""

import numpy as np

from analysis.kernel.histogram import Floats
from quotas.throttle import excess


class Pace:
    """How much one second lets through at the most: the solution of the model's equation, column by column."""

    def __init__(self, limit: Floats, peak: Floats, in_flight: Floats, window_s: float) -> None:
        self._limit = limit
        self._peak = peak
        self._window_s = window_s
        self._flight_s = in_flight / peak
        self._double = 2 * in_flight
        self._quadruple = 4 * in_flight / limit

    def bytes_after(self, recent: Floats) -> Floats:
        """Return the most bytes of a second before which, in the window, ``recent`` bytes were sent."""
        wait_s = excess(recent / self._window_s, self._limit, self._window_s)
        wait_s += self._flight_s
        flow = self._double / (wait_s + np.sqrt(wait_s * wait_s + self._quadruple))
        return np.minimum(flow, self._peak, out=flow)
