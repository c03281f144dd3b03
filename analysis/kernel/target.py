"""The targets of ``--target``."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from analysis.kernel.histogram import EDGES_S
from config.problems import InvalidValue
from config.units import parse_duration_ms
from quotas.rate import Window


class Measure(StrEnum):
    THROTTLE = "throttle"
    """The throttle times of requests."""
    DELAY = "delay"
    """The delay of bytes until they are sent."""
    SHARE = "throttled share"
    """The throttled share of a client's active time."""


@dataclass(frozen=True, slots=True)
class Target:
    """``measure`` is below ``most``: seconds, for ``share`` of all bytes, or a share of time."""

    measure: Measure
    share: float
    most: float

    def edge_s(self, window: Window) -> float:
        """Return the shortest time that violates the target, on the safe side of the model's errors."""
        surely_s = self.most
        if self.measure is Measure.THROTTLE:
            # Throttle times jump by one sample when a sample expires; the model has their mean.
            surely_s = max(self.most - window.size_ms / 1000, 0.0)
        return float(EDGES_S[max(int(np.searchsorted(EDGES_S, surely_s, side="right")) - 1, 1)])


_FORM: Final = "write it like `p99 throttle < 100 ms`, `p95 delay < 2 s` or `throttled share < 0.1 %`"
_TIME: Final = re.compile(r"(?:p([0-9]{1,2}(?:\.[0-9]+)?)|(max)) (throttle|delay) ?< ?(.+)")
_SHARE: Final = re.compile(r"throttled share ?< ?(.+)")
_NUMBER: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(%?)")


def parse_target(text: str) -> Target:
    """Read a target. Raises InvalidValue with the fix."""
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
