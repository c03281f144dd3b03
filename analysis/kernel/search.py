"""The smallest quota for each unit that meets a target, and how far it can be trusted."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from analysis.kernel import histogram
from analysis.kernel.censoring import Answer
from analysis.kernel.demand import Bools, Demand, surge_bytes
from analysis.kernel.fluid import Bounds, replay
from analysis.kernel.histogram import Floats
from analysis.kernel.outcome import Outcome
from config.problems import InvalidValue
from config.units import BYTE_UNITS, parse_duration_ms
from quotas.rate import Window

SCALES: Final = 8
"""How many quotas are tried in one pass: the block is as wide, and costs three times as much as one."""
_RESOLUTION: Final = 1.02
_LEAST_DAYS: Final = 1.0
_MANY_DAYS: Final = 7.0
_DAY_S: Final = 86_400


class Measure(StrEnum):
    """What a target is about."""

    THROTTLE = "throttle"
    """The throttle times of requests."""
    DELAY = "delay"
    """How long bytes wait until they are sent."""
    SHARE = "throttled share"
    """How much of its active time a client is throttled."""


@dataclass(frozen=True, slots=True)
class Target:
    """``measure`` is below ``most`` (seconds, or a share), for times: of ``share`` of all bytes."""

    measure: Measure
    share: float
    most: float

    def met(self, outcome: Outcome, window: Window = Window()) -> Bools:  # noqa: B008  frozen
        """Return where, [scenario, unit]; on the safe side of what the model blurs within one sample."""
        if self.measure is Measure.SHARE:
            return np.asarray(outcome.throttled_share < self.most)
        if self.measure is Measure.DELAY:
            return np.asarray(histogram.share_above(outcome.delays, self.most) <= 1 - self.share)
        # Throttle times jump by one sample when a window begins anew; the model has their mean.
        surely_s = max(self.most - window.size_ms / 1000, 0.0)
        return np.asarray(histogram.share_above(outcome.throttles, surely_s) <= 1 - self.share)


_FORM: Final = "write it like `p99 throttle < 100 ms`, `p95 delay < 2 s` or `throttled share < 0.1 %`"
_TIME: Final = re.compile(r"(?:p([0-9]{1,2}(?:\.[0-9]+)?)|(max)) (throttle|delay) ?< ?(.+)")
_SHARE: Final = re.compile(r"throttled share ?< ?(.+)")
_NUMBER: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(%?)")


def parse_target(text: str) -> Target:
    """Return the target that ``text`` says. Raises InvalidValue with the fix."""
    words = " ".join(text.split())
    share = _SHARE.fullmatch(words)
    if share:
        return Target(Measure.SHARE, 1.0, _parse_share(share[1]))
    time = _TIME.fullmatch(words)
    if time is None:
        raise InvalidValue(f"{text!r} is not a target", _FORM)
    percent, _, measure, limit = time.groups()
    wanted = 1.0 if percent is None else float(percent) / 100
    if wanted == 0:
        raise InvalidValue(f"p{percent} asks for nothing", _FORM)
    most_s = parse_duration_ms(limit) / 1000
    if most_s == 0:
        raise InvalidValue("nothing is below 0 ms", "write `throttled share < 0.1 %` for hardly ever")
    return Target(Measure(measure), wanted, most_s)


def _parse_share(text: str) -> float:
    number = _NUMBER.fullmatch(text)
    if number is None:
        raise InvalidValue(f"{text!r} is not a share", "write it like 0.1 % or 0.001")
    share = float(number[1]) / (100 if number[2] else 1)
    if not 0 < share <= 1:
        raise InvalidValue(f"{text!r} is not a share", "a share is above 0 and at most 1, or 100 %")
    return share


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


def smallest(
    demand: Demand,
    target: Target,
    window: Window = Window(),  # noqa: B008  frozen
    *,
    bounds: Bounds = Bounds(),  # noqa: B008  frozen
) -> Floats:
    """Return the smallest quota [unit] under which ``demand`` meets ``target``, to 2 %, from above.

    Give it the demand at most (``Censored.high``). Never below the mean rate, under which a backlog only grows; 0
    for a unit without demand.
    """
    total = demand.sent_bytes.sum(axis=0)
    found = np.zeros(len(total))
    wanted = np.flatnonzero(total)
    if not len(wanted):
        return found
    demand = demand.only(wanted)

    def met(tried: Floats) -> Bools:
        return target.met(replay(demand, tried, window, bounds=bounds), window)

    high = enough(surge_bytes(demand.sent_bytes, surge_window_s(window)), window)
    found[wanted] = least_that(met, total[wanted] / len(demand.sent_bytes), high)
    return found


def least_that(met: Callable[[Floats], Bools], low: Floats, high: Floats) -> Floats:
    """Return the smallest quota [unit] between ``low`` and ``high`` that does, to 2 %, from above.

    ``met`` says of quotas [scenario, unit], ``SCALES`` of them at once, which do; those of ``high`` are known to.
    """
    low = np.minimum(low, high)
    parts = np.arange(SCALES) / SCALES  # the low end itself may do, once
    while (high > low * _RESOLUTION).any():
        tried = low * (high / low) ** parts[:, None]
        # All from there on must meet it: a quota that is met by chance below one that is not is not trusted.
        fails = SCALES - np.logical_and.accumulate(met(tried)[::-1]).sum(axis=0)
        unit = np.arange(len(low))
        low, high = np.concatenate((low[None], tried))[fails, unit], np.concatenate((tried, high[None]))[fails, unit]
        parts = np.arange(1, SCALES + 1) / (SCALES + 1)
    return high


def surge_window_s(window: Window) -> float:
    """Return how long the bytes of a surge can count together, wherever samples begin."""
    return (window.keep_ms + window.size_ms) / 1000


def enough(surge: Floats, window: Window) -> Floats:
    """Return quotas under which nobody is ever throttled, from the most bytes in any ``surge_window_s``.

    Kafka divides by N - 1 samples at least.
    """
    sample_s = window.size_ms / 1000
    return np.asarray(surge / max(window.keep_ms / 1000 - sample_s, sample_s))


def with_headroom(quotas: ArrayLike, headroom: float = 0.15) -> Floats:
    """Return quotas that leave ``headroom`` above what is needed, as whole bytes that an operator would write."""
    return round_up(np.asarray(quotas, dtype=float) * (1 + headroom))


def round_up(quotas: ArrayLike) -> Floats:
    """Round to two digits, upwards: at most 10 % more, never less than is needed. 0 stays 0."""
    needed = np.asarray(quotas, dtype=float)
    step = 10.0 ** np.maximum(np.floor(np.log10(np.maximum(needed, 1))) - 1, 0)
    steps = np.floor(needed / step)
    return np.asarray(np.where(steps * step >= needed, steps, steps + 1) * step)


def write_bytes(quota: float) -> str:
    """Return a whole number of bytes as a quota file has it: 1.2MB, 850kB, 120."""
    for unit in ("GB", "MB", "kB"):
        whole = BYTE_UNITS[unit]
        if quota >= whole and quota * 10 % whole == 0:
            return f"{quota / whole:.12g}{unit}"
    return f"{quota:.0f}"
