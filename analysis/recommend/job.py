"""The smallest quotas under which what was recorded meets a target, for each user, client-id, pair or present rule."""

import numpy as np

from analysis.kernel.search import enough, surge_window_s
from analysis.recommend.choices import Choices
from analysis.recommend.needs import Recommendation, recommendations
from analysis.recommend.searching import FIGURES, BucketSearchWork, ConnectionSearchWork, SearchWork
from analysis.recommend.whose import Wanted, by_name
from analysis.replay.gathering import gather, gather_refusing
from analysis.replay.recording import REFUSING, Recording


def recommend(recording: Recording, choices: Choices, wanted: Wanted | None = None) -> list[Recommendation]:
    """Return a recommendation for each quota that has counters with use, by name; without ``wanted`` for each name.

    Raises AnalysisError where no name is wanted.
    """
    if wanted is None:
        wanted = by_name(recording, choices)
    units = wanted.units
    window = recording.circumstances.window
    of_quota, quotas = wanted.by_quota()
    most = enough(units.most_bytes(recording, surge_window_s(window)), window)
    total = units.sums(recording, "sent_bytes")
    least = np.zeros(quotas)
    np.maximum.at(least, of_quota, total / recording.circumstances.seconds)
    # Where another broker's mean is more than all that could be needed here, this one does not decide.
    floor = np.array([choices.least(kind) for kind in wanted.kinds])
    searched = (total > 0) & (most >= least[of_quota]) & (most * (1 + choices.headroom) > floor)
    held_up = units.only(searched).of_kinds([kind for kind in units.unit_of if kind not in REFUSING])
    buckets, connections = (units.only(total > 0).of_kinds([kind]) for kind in REFUSING)
    controller, seconds = recording.circumstances.controller_window, recording.circumstances.seconds
    figures = np.zeros((len(FIGURES), units.units))
    for found in (
        gather(recording, held_up, SearchWork(window, choices.target)),
        gather_refusing(recording, buckets, BucketSearchWork(controller, choices.target, seconds)),
        gather_refusing(recording, connections, ConnectionSearchWork(window, choices.target, seconds)),
    ):
        if found.num_rows:
            figures[:, found["unit"].to_numpy()] = [found[name].to_numpy() for name in FIGURES]
    return recommendations(recording, choices, wanted, figures)
