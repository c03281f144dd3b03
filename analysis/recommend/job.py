"""The smallest quotas under which what was recorded meets a target, for each present rule or each name."""

import numpy as np

from analysis.demand.gathering import gather
from analysis.demand.recording import Recording
from analysis.demand.rows import Charges
from analysis.kernel.search import enough
from analysis.recommend.choices import Choices
from analysis.recommend.needs import Recommendation, recommendations
from analysis.recommend.searching import FIGURES, SCHEMA, Searching
from analysis.recommend.whose import Wanted


def recommend(recording: Recording, choices: Choices, wanted: Wanted, charges: Charges) -> list[Recommendation]:
    """Return a recommendation for each quota that has counters with use; ``charges`` gives the rows, where needed."""
    units = wanted.units
    window = recording.circumstances.window
    of_quota, quotas = wanted.by_quota()
    # The most that any quota could have to be: two windows hold whatever counts together, wherever samples begin.
    most = enough(2 * units.surge(recording), window)
    total = units.sums(recording, "used")
    least = np.zeros(quotas)
    np.maximum.at(least, of_quota, total / recording.circumstances.seconds)
    # Where another broker's mean is more than all that could be needed here, this one does not decide.
    floor = np.array([choices.least(kind) for kind in wanted.kinds])
    searched = (total > 0) & (most >= least[of_quota]) & (most * (1 + choices.headroom) > floor)
    figures = np.zeros((len(FIGURES), units.units))
    if searched.any():
        found = gather(recording, units.only(searched), charges, Searching(window, choices.target), SCHEMA)
        figures[:, found["unit"].to_numpy()] = [found[name].to_numpy() for name in FIGURES]
    return recommendations(recording, choices, wanted, figures)
