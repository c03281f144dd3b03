"""Rows of usage records as seconds of demand, sparse and for periods of any length: what is replayed a piece at a time.

A *series* is what a throttle held up as one while it was recorded; the seconds of one or several make up a unit of
the quotas that are looked at. NumPy alone, on arrays of rows.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from analysis.kernel.censoring import Answer, bounds
from analysis.kernel.demand import Bools, Demand, Indices
from analysis.kernel.fluid import Bounds, replay
from analysis.kernel.histogram import Floats
from analysis.kernel.network import Network, replay_together
from analysis.kernel.outcome import Carry, Outcome
from quotas.rate import Window

_GRAIN_MS: Final = 100
"""What intervals are rounded to: their beginnings are off by some milliseconds, and are meant not to be."""
_GRAINS: Final = 1000 // _GRAIN_MS
_PIECE_S: Final = 2048
"""Seconds that are replayed at once, and so are in memory."""
_COLUMNS: Final = 1024
"""Units times scenarios, likewise. Fewer would cost more time for each, more would cost memory."""
_MOVED_CELLS: Final = 2**20
"""Seconds times series whose bytes are moved to the begin of their throttles at once."""
_SPREAD_CELLS: Final = 2**22
"""Of rows whose use is spread over the seconds of their intervals at once: some 300 MB."""
_NOTHING: Final = np.zeros(0)


@dataclass(frozen=True, slots=True)
class SeriesRows:
    """Rows of usage records by series, in any order; all are arrays of one length."""

    number: Indices
    """Of whom: a series, or a unit."""
    begin_ms: Indices
    """Of the interval, since second 0. Not negative."""
    interval_ms: Indices
    sent_bytes: Floats
    muted_ms: Floats
    """How long it was held up: 0 where nothing was, in other modes than ``enforce``."""

    def halves(self) -> tuple["SeriesRows", "SeriesRows"]:
        """Return the first half of them and the second."""
        columns = [getattr(self, name) for name in self.__slots__]
        middle = len(self.number) // 2
        first, second = ([column[half] for column in columns] for half in (slice(middle), slice(middle, None)))
        return SeriesRows(*first), SeriesRows(*second)


@dataclass(frozen=True, slots=True)
class Cells:
    """What was used by the second: arrays of one length, each (number, second) once, and ascending."""

    number: Indices
    second: Indices
    sent_bytes: Floats
    muted_s: Floats

    @classmethod
    def of(cls, rows: SeriesRows) -> "Cells":
        """Spread each row's use evenly over its interval, and add up what falls into the same second."""
        begin = (rows.begin_ms + _GRAIN_MS // 2) // _GRAIN_MS
        end = np.maximum((rows.begin_ms + rows.interval_ms + _GRAIN_MS // 2) // _GRAIN_MS, begin + 1)
        first = begin // _GRAINS
        pieces = (end - 1) // _GRAINS - first + 1
        if pieces.sum() > _SPREAD_CELLS and len(pieces) > 1:
            earlier, later = rows.halves()
            return cls.of(earlier).plus(cls.of(later))
        row = np.repeat(np.arange(len(pieces)), pieces)
        second = first[row] + np.arange(len(row)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        overlap = np.minimum(end[row], (second + 1) * _GRAINS) - np.maximum(begin[row], second * _GRAINS)
        share = overlap / (end - begin)[row]
        return cls._gathered(
            rows.number[row],
            second,
            rows.sent_bytes[row] * share,
            rows.muted_ms[row] * (share / 1000),
        )

    @classmethod
    def none(cls) -> "Cells":
        nobody = np.zeros(0, dtype=np.intp)
        return cls(nobody, nobody, _NOTHING, _NOTHING)

    @classmethod
    def _gathered(cls, number: Indices, second: Indices, *values: Floats) -> "Cells":
        if not len(number):
            return cls.none()
        span = int(second.max()) + 1
        key = number * span + second
        order = np.argsort(key, kind="stable")
        key = key[order]
        starts = np.flatnonzero(np.diff(key, prepend=-1))
        sent, muted = (np.add.reduceat(value[order], starts) for value in values)
        return cls(key[starts] // span, key[starts] % span, sent, np.minimum(muted, 1.0))

    def plus(self, other: "Cells") -> "Cells":
        """Return what both hold together."""
        if not len(self.number):
            return other
        return self._gathered(
            np.concatenate((self.number, other.number)),
            np.concatenate((self.second, other.second)),
            np.concatenate((self.sent_bytes, other.sent_bytes)),
            np.concatenate((self.muted_s, other.muted_s)),
        )

    def where(self, chosen: Bools) -> "Cells":
        """Return some of them."""
        return Cells(
            self.number[chosen],
            self.second[chosen],
            self.sent_bytes[chosen],
            self.muted_s[chosen],
        )

    def renumbered(self, numbers: Indices) -> "Cells":
        """Return them with ``numbers[number]``, which may be the same for several: these are added up."""
        return self._gathered(numbers[self.number], self.second, self.sent_bytes, self.muted_s)

    def starts(self, count: int) -> Indices:
        """Return where the cells of each of ``count`` numbers begin, and where those of the last one end."""
        return np.searchsorted(self.number, np.arange(count + 1))

    def sums(self, values: Floats, count: int) -> Floats:
        """Return the sums of ``values``, one for each cell, of each of ``count`` numbers."""
        return np.asarray(np.bincount(self.number, values, count), dtype=float)

    def surge_bytes(self, count: int, window_s: float) -> Floats:
        """Return the most bytes of each number in any window, rounded up to whole seconds, sliding by seconds."""
        most = np.zeros(count)
        if len(self.number):
            span = int(self.second.max()) + 1 + int(np.ceil(window_s))
            key = self.number * span + self.second
            total = np.concatenate(([0.0], np.cumsum(self.sent_bytes)))
            since = np.maximum(key - int(np.ceil(window_s)) + 1, self.number * span)
            np.maximum.at(most, self.number, total[1:] - total[np.searchsorted(key, since)])
        return most


@dataclass(frozen=True, slots=True)
class Recorded:
    """What is known of units: their demand at least and at most, and [unit] how the seconds of it came about."""

    low: Cells
    high: Cells
    """Differs from ``low`` in units that were held up."""
    answers: tuple[Answer, ...]
    seconds: int
    requests: Floats
    request_bytes: Floats
    peak_bytes_per_s: Floats

    @classmethod
    def of(cls, cells: Cells, unit_of: Indices, requests: Floats, seconds: int) -> "Recorded":
        """Take the cells of series [series -> unit]; ``requests`` is [unit]."""
        low = cells.renumbered(unit_of)
        units = len(requests)
        total = low.sums(low.sent_bytes, units)
        most = np.zeros(units)
        np.maximum.at(most, low.number, low.sent_bytes)
        muted = np.zeros(len(unit_of), dtype=bool)
        muted[cells.number[cells.muted_s > 0]] = True
        moved, unknown = _earliest(cells.where(muted[cells.number]), seconds)
        held, unsure = np.zeros((2, units), dtype=bool)
        held[unit_of[muted]] = True
        unsure[unit_of[unknown]] = True
        high = cells.where(~muted[cells.number]).plus(moved).renumbered(unit_of) if len(moved.number) else low
        answers = np.where(unsure, Answer.UNKNOWN, np.where(held, Answer.INTERVAL, Answer.EXACT))
        return cls(
            low,
            high,
            tuple(map(Answer, answers.tolist())),
            seconds,
            requests,
            np.maximum(total / np.maximum(requests, 1), 1),
            _peak(most),
        )

    @property
    def censored(self) -> Bools:
        """[unit]: ``high`` is not ``low``."""
        return np.array([answer is not Answer.EXACT for answer in self.answers], dtype=bool)

    def stretches(self, units: Indices, scenarios: int) -> Iterator["Stretch"]:
        """Yield some units, so many at a time as can be replayed together."""
        width = max(_COLUMNS // scenarios, 1)
        starts = [cells.starts(len(self.answers)) for cells in (self.low, self.high)]
        for at in range(0, len(units), width):
            yield Stretch(self, units[at : at + width], starts[0], starts[1])

    def stretch(self, units: Indices) -> "Stretch":
        """Return some units as one stretch, however many."""
        return Stretch(self, units, *(cells.starts(len(self.answers)) for cells in (self.low, self.high)))


class Stretch:
    """Units whose whole period is replayed together, a piece after the other."""

    def __init__(self, recorded: Recorded, units: Indices, low: Indices, high: Indices) -> None:
        """``low`` and ``high`` are where the cells of each unit begin."""
        self.units = units
        self._recorded = recorded
        self._low = _Course(recorded.low, units, low)
        self._high = _Course(recorded.high, units, high) if recorded.censored[units].any() else self._low

    @property
    def censored(self) -> bool:
        """Whether demand at most is more than demand at least."""
        return self._high is not self._low

    def replay(
        self,
        limits: Floats,
        window: Window,
        bounds: Bounds = Bounds(),  # noqa: B008  frozen
        *,
        high: bool = False,
        network: Network | None = None,
    ) -> Outcome:
        """Let the demand at least (or at most) meet ``limits`` [scenario, unit of ``units``].

        With a ``network`` the units are its flows, the limits those of its counters, and so is the outcome.
        """
        recorded = self._recorded
        course = self._high if high else self._low
        whole: Outcome | None = None
        carry: Carry | None = None
        end = 0
        while end < recorded.seconds:
            begin, end = end, min(end + _PIECE_S, recorded.seconds)
            sent = course.sent_bytes(begin, end)
            if whole is not None and not sent.any() and (carry is None or _quiet(carry)):
                carry = None
                end = max(end, min(course.next_second(end) // _PIECE_S * _PIECE_S, recorded.seconds))
                continue
            demand = Demand(
                sent,
                recorded.request_bytes[self.units],
                recorded.peak_bytes_per_s[self.units],
            )
            more = end < recorded.seconds
            if network is None:
                outcome = replay(demand, limits, window, bounds=bounds, before=carry, more=more)
            else:
                outcome = replay_together(demand, network, limits, window, before=carry, more=more)
            carry = outcome.carry
            whole = outcome if whole is None else whole.then(outcome)
        if whole is None:
            raise ValueError("a recording without a second")
        return replace(whole, seconds=recorded.seconds)


class _Course:
    """The cells of some units by the second."""

    def __init__(self, cells: Cells, units: Indices, starts: Indices) -> None:
        lengths = starts[units + 1] - starts[units]
        index = np.repeat(starts[units] - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
        order = np.argsort(cells.second[index], kind="stable")
        self._second = cells.second[index][order]
        self._column = np.repeat(np.arange(len(units)), lengths)[order]
        self._sent_bytes = cells.sent_bytes[index][order]
        self._units = len(units)

    def next_second(self, since: int) -> int:
        """Return the first second from there on in which anything was sent; where there is none, one beyond all."""
        at = int(np.searchsorted(self._second, since))
        return int(self._second[at]) if at < len(self._second) else sys.maxsize

    def sent_bytes(self, begin: int, end: int) -> Floats:
        """Return [second, unit] of the seconds from ``begin`` to ``end``."""
        part = slice(*np.searchsorted(self._second, (begin, end)))
        sent = np.zeros((end - begin, self._units))
        sent[self._second[part] - begin, self._column[part]] = self._sent_bytes[part]
        return sent


def _quiet(carry: Carry) -> bool:
    return not (carry.waiting_bytes.any() or carry.recent_bytes.any() or carry.muted_s.any())


def _peak(most_bytes_per_s: Floats) -> Floats:
    one = np.ones((1, len(most_bytes_per_s)))
    return Demand.recorded(most_bytes_per_s[None], one).peak_bytes_per_s


def _earliest(cells: Cells, seconds: int) -> tuple[Cells, Indices]:
    """Return what was sent, but in each throttle as early as could be; and the numbers held up at the end."""
    numbers = np.unique(cells.number)
    found = []
    unknown: list[int] = []
    # Of seconds in which nobody did anything two are left behind each other one: no throttle reaches over them.
    known = np.unique(np.concatenate((*(cells.second + later for later in range(3)), [seconds - 1])))
    known = known[known < seconds]
    width = max(_MOVED_CELLS // len(known), 1)
    for at in range(0, len(numbers), width):
        part = numbers[at : at + width]
        mine = slice(*np.searchsorted(cells.number, (part[0], part[-1] + 1)))
        column, row = np.searchsorted(part, cells.number[mine]), np.searchsorted(known, cells.second[mine])
        sent, muted = np.zeros((2, len(known), len(part)))
        sent[row, column] = cells.sent_bytes[mine]
        muted[row, column] = cells.muted_s[mine]
        nothing = np.ones(len(part))
        censored = bounds(Demand(sent, nothing, _peak(sent.max(axis=0))), muted)
        column, row = np.nonzero(censored.high.sent_bytes.T)
        nobody = np.zeros(len(column))
        found.append(Cells(part[column], known[row], censored.high.sent_bytes[row, column], nobody))
        unknown += part[[answer is Answer.UNKNOWN for answer in censored.answers]].tolist()
    joined = (np.concatenate([getattr(cells, name) for cells in found]) for name in Cells.__slots__) if found else ()
    return Cells(*joined) if found else Cells.none(), np.array(unknown, dtype=np.intp)
