"""Whether delays fall into somebody's peaks more than chance would put there: the statistics, in NumPy alone.

Time is a row of moments, cut into blocks of an hour. Others' delay in a peak is held against what was to be expected in
that moment of those that were active in it, within the same hour:

    expected(t) = sum over others active in t of what their own use, or their own requests, explain
    excess(t)   = delay(t) - expected(t) x (the hour's delay / the hour's expected)
    score       = sum of excess in peaks / all of others' delay        0 is chance, 1 is all of it in no time

Clients that are merely active at the same time as those delayed score nothing by that: what the delayed did themselves
explains their delay (``own_use``); in moments in which they are not active nothing is expected, and those moments are
not looked at; and what is the same for a whole hour (a night, a working day) takes part in no comparison.

How likely such a score is by chance: within each hour the peaks are moved along, all by as much and around its end
(a circular shift), by another random step in each hour. Bursts and waves of delay stay as long as they are, so that
what lasts long is not counted as many coincidences. The p-value is how many of such random shifts score as much. Delay
may follow peaks: the best of several LAGS is taken, of the shifts as well. See docs/decisions/0029-neighbours.md.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from analysis.table.arrays import Floats, Ints

Flags = NDArray[np.bool_]

LAGS: Final = (0, 1, 2, 3, 6)
"""Moments after a peak."""
LEAST_BURSTS: Final = 3
"""Who peaks less often has coincided too seldom to say anything, whatever the odds."""
LEVEL: Final = 0.05
"""Of error: how often anybody at all is named in a report in which nobody's peaks have to do with delays."""
LEAST_SCORE: Final = 0.01
"""A part of others' delay that is worth a word, however sure it is: what is usual is known no better."""
_REST: Final = 6
"""Moments without a peak that end a burst."""
_DRAWS: Final = 999
_LIKELY: Final = 0.02
"""From which p on more draws are not worth it."""
_DRAWS_OF_ONE_TEST: Final = 50
"""So many for each test that there is: the least p is then told from LEVEL after correction."""
_LEAST_DRAWS: Final = 9_999
_AT_A_TIME: Final = 1_000_000
_SEED: Final = 29
"""The same rows give the same report."""
_NINETY_FIVE: Final = 1.96


@dataclass(frozen=True, slots=True)
class Others:
    """One row of moments, [moment]: all clients but one."""

    delay: Floats
    expected: Floats
    """Of the same moments, from what each client did itself. Where it is 0, nobody was there to delay."""
    block: Ints
    """The number of the hour; ascending."""

    def scale(self) -> Floats:
        """Return [moment] by how much more the hour had of delay than what was expected in it; 0 where nothing was."""
        _, code = np.unique(self.block, return_inverse=True)
        there = self.expected > 0
        delay, expected = (
            np.bincount(code[there], each[there], code[-1] + 1).astype(float) for each in (self.delay, self.expected)
        )
        scale: Floats = np.divide(delay, expected, out=np.zeros_like(delay), where=expected > 0)
        return scale[code]

    def without(self, moments: Flags) -> "Others":
        return Others(np.where(moments, 0, self.delay), np.where(moments, 0, self.expected), self.block)


@dataclass(frozen=True, slots=True)
class Weighed:
    """What was found of one client's peaks."""

    lag: int
    """Moments, one of LAGS."""
    score: float
    low: float
    high: float
    """95 % of the interval of ``score``, over the hours."""
    p: float
    in_peaks: float
    """Others' delay in peaks, ``lag`` moments later."""
    expected: float
    """Of it, by chance."""
    delay: float
    """Others', in all moments."""
    hours: int
    """That have something to compare: others' delay, and moments both in peaks and not."""


def coincides(found: Weighed, p_adjusted: float) -> bool:
    """Return whether anything is to be said of somebody, whose p-value is ``adjusted``."""
    return p_adjusted <= LEVEL and found.score >= LEAST_SCORE


def bursts(peak: Flags) -> Ints:
    """Return the moments in which bursts of peaks begin: those with a rest before them."""
    at = np.flatnonzero(peak)
    return at[np.diff(at, prepend=-_REST - 1) > _REST]


def later(peak: Flags, lag: int) -> Flags:
    """Return the moments ``lag`` after those of peaks."""
    found = np.zeros_like(peak)
    found[lag:] = peak[: max(len(peak) - lag, 0)]
    return found


def weigh(peak: Flags, others: Others, tests: int) -> Weighed | None:
    """Return how others' delay falls into peaks, for one of ``tests`` tests; None where nothing can be compared."""
    return _Comparison.of(peak, others).result(tests)


def adjusted(p: Sequence[float]) -> list[float]:
    """Return p-values of tests that are made together, corrected by Holm: the least is multiplied by their number."""
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate(np.asarray(p, dtype=float)[order] * np.arange(len(p), 0, -1))
    found = np.empty(len(p))
    found[order] = np.minimum(steps, 1.0)
    return [float(each) for each in found]


def apart(ranked: Sequence[tuple[Flags, int]], others: Sequence[Others], tests: int) -> list[int | None]:
    """Return for each of several, the strongest first, which of those before it explains it; None: it stands by itself.

    ``ranked`` are their peaks and lags. One that says nothing more once the moments are left out in which stronger ones
    peak only peaks together with one of these: with the one that it shares most peaks with.
    """
    found: list[int | None] = []
    for number, (peak, _) in enumerate(ranked):
        stronger = [each for each, behind in enumerate(found) if behind is None]
        if stronger:
            taken = np.logical_or.reduce([_reach(*ranked[each]) for each in stronger])
            left = weigh(peak, others[number].without(taken), tests)
            if left is None or left.p > LEVEL:
                found.append(max(stronger, key=lambda each: int((ranked[each][0] & peak).sum())))
                continue
        found.append(None)
    return found


def _reach(peak: Flags, lag: int) -> Flags:
    """Return the moments of peaks, and those after them in which delay is laid to them."""
    return np.asarray(np.logical_or.reduce([later(peak, after) for after in range(lag + 1)]), dtype=bool)


@dataclass(frozen=True, slots=True)
class _Comparison:
    delay: float
    sums: Floats
    """[lag] of the excess in peaks."""
    in_peaks: Floats
    """[lag]"""
    by_block: tuple[Floats, Floats, Floats]
    """[lag, block] the excess in peaks; [block] delay; [lag, block] whether there is anything to compare."""
    shifts: tuple[Floats, ...]
    """[lag, block, shift] the excess in peaks that are shifted, of the blocks of each length that have any."""

    @classmethod
    def of(cls, peak: Flags, others: Others) -> "_Comparison":
        there = others.expected > 0
        delay = others.delay[there]
        excess = delay - (others.expected * others.scale())[there]
        peaks = np.stack([later(peak, lag)[there] for lag in LAGS]).astype(float)
        numbers, starts = np.unique(others.block[there], return_index=True)
        lengths = np.diff(starts, append=len(delay))
        if not len(numbers):
            nothing = np.zeros((len(LAGS), 0))
            return cls(0.0, np.zeros(len(LAGS)), np.zeros(len(LAGS)), (nothing, nothing[0], nothing), ())
        of_block = np.add.reduceat(delay, starts)
        found = np.add.reduceat(peaks * excess, starts, axis=1)
        count = np.add.reduceat(peaks, starts, axis=1)
        compared = (count > 0) & (count < lengths) & (of_block > 0)
        shifts = []
        any_lag = compared.any(axis=0)
        for length in np.unique(lengths[any_lag]).tolist():
            first = starts[any_lag & (lengths == length)]
            rows = first[:, None] + np.arange(length)
            shifts.append(_all_shifts(peaks[:, rows], excess[rows]))
        return cls(
            float(delay.sum()),
            found.sum(axis=1),
            peaks @ delay,
            (found, of_block, compared.astype(float)),
            tuple(shifts),
        )

    def result(self, tests: int) -> Weighed | None:
        spread = self._spread()
        if not self.delay or not spread.any():
            return None
        scaled = np.divide(self.sums, spread, out=np.full(len(LAGS), -np.inf), where=spread > 0)
        best = int(np.argmax(scaled))
        score = float(self.sums[best] / self.delay)
        low, high = self._interval(best, score)
        return Weighed(
            lag=LAGS[best],
            score=score,
            low=low,
            high=high,
            p=self._p(float(scaled[best]), spread, tests),
            in_peaks=float(self.in_peaks[best]),
            expected=float(self.in_peaks[best] - self.sums[best]),
            delay=self.delay,
            hours=int(self.by_block[2][best].sum()),
        )

    def _spread(self) -> Floats:
        """Return [lag] the standard deviation of ``sums`` over shifts; their mean is 0, as that of the excess is."""
        spread = np.zeros(len(LAGS))
        for each in self.shifts:
            spread += np.square(each).mean(axis=2).sum(axis=1)
        # What is left of sums that cancel is none.
        return np.where(spread > 1e-12 * self.delay**2, np.sqrt(spread), 0.0)

    def _interval(self, lag: int, score: float) -> tuple[float, float]:
        """Return where the score would lie if other hours of the kind were recorded; all there is, of one hour."""
        blocks = self.by_block[1] > 0
        rest = (self.by_block[0][lag] - score * self.by_block[1])[blocks]
        if len(rest) < 2:
            return -1.0, 1.0
        error = _NINETY_FIVE * float(np.sqrt(np.square(rest).sum() * len(rest) / (len(rest) - 1))) / self.delay
        return max(score - error, -1.0), min(score + error, 1.0)

    def _p(self, found: float, spread: Floats, tests: int) -> float:
        chance = np.random.default_rng(_SEED)
        drawn = as_much = 0
        for draws in (_DRAWS, max(_LEAST_DRAWS, _DRAWS_OF_ONE_TEST * tests) - _DRAWS):
            for part in self._drawn(chance, draws, spread):
                as_much += int((part >= found - 1e-9 * abs(found)).sum())
            drawn += draws
            if as_much > _LIKELY * drawn:
                break
        return (as_much + 1) / (drawn + 1)

    def _drawn(self, chance: np.random.Generator, draws: int, spread: Floats) -> Iterator[Floats]:
        """Yield the best of LAGS of random shifts, a part of ``draws`` at a time."""
        blocks = sum(each.shape[1] for each in self.shifts)
        at_a_time = max(_AT_A_TIME // (blocks * len(LAGS)), 1)
        usable = np.flatnonzero(spread > 0)
        for first in range(0, draws, at_a_time):
            count = min(at_a_time, draws - first)
            sums = np.zeros((len(usable), count))
            for each in self.shifts:
                shift = chance.integers(each.shape[2], size=(count, each.shape[1]))
                sums += each[usable][:, np.arange(each.shape[1]), shift].sum(axis=2)
            yield (sums / spread[usable, None]).max(axis=0)


def _all_shifts(peaks: Floats, excess: Floats) -> Floats:
    """Return [lag, block, shift] the sum of ``excess`` [block, moment] in ``peaks`` [lag, block, moment] shifted."""
    length = excess.shape[-1]
    product = np.conj(np.fft.rfft(peaks)) * np.fft.rfft(excess)
    return np.fft.irfft(product, n=length)
