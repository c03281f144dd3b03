"""All rows of one run: the targets in alternation, round by round."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.measure import Duration, Sample, measure, measure_start, measure_version
from bench.programs import DIRECT, NO_QUOTAS, SLUICE, SLUICES, Variant
from bench.rows import Measure, Row
from bench.targets import DEFAULT, Fleet, Target

FEWER_ROUNDS = 3
"""The rounds of rows that start processes: these take long and vary little."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The extent of a run: the number of rounds per row; each round measures every target once."""

    targets: tuple[str, ...]
    rounds: int
    duration: Duration


class Run:
    """The state of one run: the running targets, by name and variant."""

    def __init__(self, fleet: Fleet, plan: Plan) -> None:
        self._fleet = fleet
        self._plan = plan
        self._up: dict[tuple[str, Variant], Target] = {}

    def row(self, row: Row) -> dict[str, list[Sample]]:
        """Measure a row; returns samples by target. The order of targets rotates between rounds."""
        names = self._names(row)
        rounds = self._plan.rounds
        if row.measure in {Measure.MEMORY, Measure.START, Measure.VERSION}:
            rounds = min(rounds, FEWER_ROUNDS)
        samples: dict[str, list[Sample]] = {name: [] for name in names}
        for number in range(rounds):
            for name in _rotated(names, number):
                if name == DIRECT and number and row.measure is not Measure.LATENCY:
                    continue  # a control of the load, not a figure
                _progress(f"{row.name}: round {number + 1} of {rounds}, {name}")
                samples[name].append(self._sample(row, name))
        _progress("")
        self._stop_all_but_one_quota()
        return samples

    def _names(self, row: Row) -> list[str]:
        match row.measure:
            case _ if row.against == NO_QUOTAS:
                return [DIRECT, *(name for name in self._plan.targets if name == SLUICE), NO_QUOTAS]
            case Measure.VERSION:
                names: Iterable[str] = SLUICES
            case Measure.START if row.entities > 1:
                names = SLUICES
            case Measure.START | Measure.MEMORY:
                names = self._plan.targets
            case _:
                # The stand-in broker has no TLS, so there is no direct connection to compare with.
                names = self._plan.targets if row.load.tls else (DIRECT, *self._plan.targets)
                return list(names)
        return [name for name in names if name in self._plan.targets]

    def _sample(self, row: Row, name: str) -> Sample:
        match row.measure:
            case Measure.VERSION:
                return measure_version(name, self._fleet)
            case Measure.START:
                return measure_start(row, name, self._fleet)
            case Measure.MEMORY:
                target = self._fleet.start(name, variant_for(row, name))
                try:
                    return measure(row, target, self._fleet, self._plan.duration)
                finally:
                    self._fleet.stop(target)
            case _:
                return measure(row, self._target(row, name), self._fleet, self._plan.duration)

    def _target(self, row: Row, name: str) -> Target:
        key = (name, variant_for(row, name))
        if key not in self._up:
            self._up[key] = self._fleet.start(*key)
        return self._up[key]

    def _stop_all_but_one_quota(self) -> None:
        for key in [key for key in self._up if key[1].entities > 1 or key[1].kinds != DEFAULT.kinds]:
            self._fleet.stop(self._up.pop(key))


def variant_for(row: Row, name: str) -> Variant:
    """Return the variant of a proxy for a row; proxies without quotas serve all of them with one."""
    if name not in SLUICES and name != NO_QUOTAS:
        return Variant(tls=row.load.tls, real=row.load.is_real)
    kinds = "none" if name == NO_QUOTAS else row.kinds
    return Variant(row.entities, row.load.tls, row.load.is_real, kinds)


def _rotated(names: Sequence[str], by: int) -> list[str]:
    by %= max(len(names), 1)
    return [*names[by:], *names[:by]]


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
