"""What is computed of each unit, before and after, in the order in which workers return it."""

from typing import Final

from analysis.kernel.censoring import Answer

SHARES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
BEFORE: Final = (
    "active_s",
    "before_throttled_s",
    "before_episodes",
    *(f"before_throttle_{name}_s" for name in SHARES),
)
AFTER: Final = (
    *("throttled_s", "throttled_least_s", "throttled_most_s", "episodes"),
    *(f"throttle_{name}_s" for name in SHARES),
    *(f"delay_{name}_s" for name in SHARES),
    *("delay_p99_most_s", "sent_bytes", "waiting_bytes", "peak_waiting_bytes", "verdict", "held_by"),
)
"""``held_by`` is the number of a unit, from 1; 0: none."""
FIGURES: Final = (*BEFORE, "answer", *AFTER)
ANSWERS: Final = tuple(Answer)
NO, POSSIBLY, YES = range(3)
VERDICTS: Final = ("no", "possibly", "yes")
"""Whether a unit would be throttled; possibly: if it wanted as much as could be while it was held up."""
