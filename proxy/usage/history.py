"""The last hour of the busiest clients, a point a minute."""

from array import array
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import nlargest
from math import nan
from typing import Final, NamedTuple

from proxy.usage.meter import ClientNames

POINTS: Final = 60
MOST: Final = 1000
"""Clients with a history: the throttled ones, then those with the most bytes."""
_FADES: Final = 0.9


@dataclass(slots=True)
class Minute:
    bytes_in: int = 0
    bytes_out: int = 0
    throttled_ms: int = 0
    ratio: float | None = None


class Series(NamedTuple):
    """Points as columns, the oldest first. ``ratio``: NaN is none."""

    at_s: list[float]
    """Wall time at the begin of each minute."""
    bytes_in_per_s: "array[float]"
    bytes_out_per_s: "array[float]"
    ratio: "array[float]"
    throttled_share: "array[float]"


@dataclass(slots=True, eq=False)
class _Track:
    """The points of a client: four values for each minute, in the order of ``Series``."""

    values: "array[float]" = field(default_factory=lambda: array("f"))
    weight: float = 0.0

    @property
    def rank(self) -> tuple[bool, float]:
        return any(self.values[3::4]), self.weight

    def add(self, minute: Minute) -> None:
        rates = minute.bytes_in / 60, minute.bytes_out / 60
        ratio = nan if minute.ratio is None else minute.ratio
        self.values.extend((*rates, ratio, min(minute.throttled_ms / 60_000, 1.0)))
        del self.values[: -4 * POINTS]
        self.weight = self.weight * _FADES + sum(rates)


class History:
    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._tracks: dict[ClientNames, _Track] = {}
        self._at_s: list[float] = []

    def choose(self, minutes: Mapping[ClientNames, Minute]) -> set[ClientNames]:
        """Return the clients to keep, given what each did in the last minute; changes nothing, for a thread."""
        idle = Minute()

        def rank(names: ClientNames) -> tuple[bool, float]:
            minute, track = minutes.get(names, idle), self._tracks.get(names)
            was_throttled, weight = (False, 0.0) if track is None else track.rank
            rate = (minute.bytes_in + minute.bytes_out) / 60
            return was_throttled or minute.throttled_ms > 0, weight * _FADES + rate

        found = nlargest(self._most, {**minutes, **self._tracks}, rank)
        return {names for names in found if names in minutes or self._tracks[names].weight >= 1}

    def add(self, kept: Collection[ClientNames], minutes: Mapping[ClientNames, Minute], at_s: float) -> None:
        """Add a point, for the minute from wall time ``at_s`` on, to each client to keep, and forget the others."""
        idle = Minute()
        self._at_s = [*self._at_s, at_s][-POINTS:]
        self._tracks = {names: self._tracks.get(names) or _Track() for names in kept}
        for names, track in self._tracks.items():
            track.add(minutes.get(names, idle))

    def __iter__(self) -> Iterator[tuple[ClientNames, float, Series]]:
        """Yield each client with its bytes a second, where the last minutes count most, and its points."""
        for names, track in list(self._tracks.items()):
            columns = (track.values[each::4] for each in range(4))
            at_s = self._at_s[-(len(track.values) // 4) :]
            yield names, track.weight * (1 - _FADES), Series(at_s, *columns)
