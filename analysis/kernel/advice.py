"""From what is needed to what is recommended: with headroom, rounded as an operator would, and how far to trust it."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from analysis.kernel.censoring import Answer
from analysis.kernel.histogram import Floats

_LEAST_DAYS: Final = 1.0
_MANY_DAYS: Final = 7.0
_DAY_S: Final = 86_400


class Confidence(StrEnum):
    """How far a recommendation can be trusted, by how much was recorded."""

    LOW = "low"
    """Less than a day, or held up by a quota until the recording ended."""
    MEDIUM = "medium"
    """Less than a week, or held up by a quota meanwhile."""
    HIGH = "high"


def confidence(answers: Sequence[Answer], recorded_s: ArrayLike) -> tuple[Confidence, ...]:
    """Return how far what was found for each unit can be trusted; ``recorded_s`` is the length of its recording."""
    days = np.broadcast_to(np.asarray(recorded_s, dtype=float) / _DAY_S, len(answers))
    return tuple(
        Confidence.LOW
        if day < _LEAST_DAYS or answer is Answer.UNKNOWN
        else Confidence.MEDIUM
        if day < _MANY_DAYS or answer is Answer.INTERVAL
        else Confidence.HIGH
        for day, answer in zip(days.tolist(), answers, strict=True)
    )


def with_headroom(quotas: ArrayLike, headroom: float = 0.15) -> Floats:
    """Return quotas that leave ``headroom`` above what is needed, as whole bytes that an operator would write."""
    return round_up(np.asarray(quotas, dtype=float) * (1 + headroom))


def round_up(quotas: ArrayLike) -> Floats:
    """Round to two digits, upwards: at most 10 % more, never less than is needed. 0 stays 0."""
    needed = np.asarray(quotas, dtype=float)
    step = 10.0 ** np.maximum(np.floor(np.log10(np.maximum(needed, 1))) - 1, 0)
    steps = np.floor(needed / step)
    return np.asarray(np.where(steps * step >= needed, steps, steps + 1) * step)
