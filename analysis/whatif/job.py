"""What proposed quotas would have done to what was recorded: who would be throttled, before and after."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from analysis.kernel.censoring import Answer, Known
from analysis.kernel.demand import Bools, Indices
from analysis.kernel.histogram import Floats
from analysis.kernel.stretch import Stretch, stretches
from analysis.kernel.units import Assignment, Client, Unit, read_rule, recorded_unit
from analysis.replay.gathering import Gathered, Units, gather, gather_refusing
from analysis.replay.recording import REFUSING, Recording, cluster_and_instance
from analysis.replay.rows import ENFORCE
from analysis.whatif.capped import MOST_FLOWS, CappedWork, flows
from analysis.whatif.figures import AFTER, ANSWERS, FIGURES, VERDICTS
from analysis.whatif.held import after, batch, before
from analysis.whatif.refusing import RefusingWork
from analysis.whatif.scenarios import LeftOut, Scenario, assign, left_out, named
from quotas.counted import CAP
from quotas.kinds import QuotaKind
from quotas.rate import Window


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The answer: ``units`` is an Arrow table with a row for each scenario, kind and unit with use."""

    recording: Recording
    scenarios: tuple[Scenario, ...]
    units: Any
    left_out: tuple[LeftOut, ...] = ()


def whatif(recording: Recording, scenarios: Sequence[Scenario]) -> WhatIf:
    """Replay what was recorded against the quotas of each scenario."""
    together: dict[tuple[bytes, ...], list[tuple[int, Mapping[QuotaKind, Assignment]]]] = {}
    for number, scenario in enumerate(scenarios):
        mine = {kind: assign(recording, scenario, kind) for kind in recording.used}
        key = tuple(each.tobytes() for assignment in mine.values() for each in (assignment.index, assignment.caps))
        together.setdefault(key, []).append((number, mine))
    nameless = [
        each for scenario in scenarios for kind in recording.used for each in left_out(recording, scenario, kind)
    ]
    tables = []
    for alike in together.values():
        table, crowds = _replayed(recording, scenarios, alike)
        tables.append(table)
        nameless += crowds
    return WhatIf(recording, tuple(scenarios), pa.concat_tables(tables), tuple(nameless))


def _replayed(
    recording: Recording, scenarios: Sequence[Scenario], alike: Sequence[tuple[int, Mapping[QuotaKind, Assignment]]]
) -> tuple[Any, list[LeftOut]]:
    """Replay scenarios in which the same clients share counters; also return whom it says nothing about by name."""
    first = alike[0][1]
    starts = dict(zip(first, np.cumsum([0, *(len(each.units) for each in first.values())]).tolist(), strict=False))
    levels = max(each.caps.shape[1] for each in first.values())
    count = sum(len(each.units) for each in first.values())
    wanted, *of_caps = (
        Units({kind: _numbered(each, place, starts[kind]) for kind, each in first.items()}, count)
        for place in range(-1, levels)
    )
    charged = Charged(recording, (wanted, *of_caps))
    limits = np.array([np.concatenate([each.limits for each in assigned.values()]) for _, assigned in alike])
    recorded = np.hstack([_recorded_limits(recording, kind, each) for kind, each in first.items()])
    window = recording.circumstances.window
    window_s = window.keep_ms / 1000
    held = charged.sums("muted_s") > 0
    replayed = held | (charged.most_bytes(window_s) > limits.min(axis=0) * window_s)
    capped = flows(recording, first, starts, replayed)
    held_up = wanted.only(replayed & ~capped.units)
    held_up = held_up.of_kinds([kind for kind in wanted.unit_of if kind not in REFUSING])
    work = CappedWork(window, limits, capped.counters, capped.component, capped.weight)
    refused = wanted.only(held | np.isfinite(limits).any(axis=0)).of_kinds(REFUSING)
    figures = _untouched(recording, charged, len(alike))
    for found in (
        gather(recording, held_up, ReplayWork(window, limits, recorded)),
        gather(recording, capped.wanted, work, capped.component) if capped.component.size else pa.table({}),
        gather_refusing(recording, refused, RefusingWork.of(refused, limits, recording.circumstances)),
    ):
        if found.num_rows:
            at = (slice(None), found["scenario"].to_numpy(), found["unit"].to_numpy())
            figures[at] = np.array([found[name].to_numpy() for name in FIGURES])
    crowds = list(_crowds(recording, scenarios, alike, capped.crowd, starts))
    return _table(scenarios, alike, charged, figures, ~capped.crowd), crowds


def _numbered(assignment: Assignment, place: int, start: int) -> Indices:
    """Return [client] the unit of its quota (place -1), or of the cap in that place, from ``start`` on."""
    caps = assignment.caps.shape[1]
    unit = (
        assignment.index
        if place < 0
        else assignment.caps[:, place]
        if place < caps
        else np.full_like(assignment.index, -1)
    )
    return np.where(unit >= 0, unit + start, -1)


@dataclass(frozen=True, slots=True)
class Charged:
    """Units by all clients that are charged to them: those of a quota, and of caps in each place."""

    recording: Recording
    levels: tuple[Units, ...]

    @property
    def units(self) -> int:
        return self.levels[0].units

    def sums(self, name: str) -> Floats:
        """Return [unit] the sums of an array of ``recording.Used``."""
        return np.asarray(np.sum([level.sums(self.recording, name) for level in self.levels], axis=0))

    def most_bytes(self, window_s: float) -> Floats:
        """Return what each unit surely does not exceed in any window of so many seconds."""
        return np.asarray(np.sum([level.most_bytes(self.recording, window_s) for level in self.levels], axis=0))


def _crowds(
    recording: Recording,
    scenarios: Sequence[Scenario],
    alike: Sequence[tuple[int, Mapping[QuotaKind, Assignment]]],
    crowd: Bools,
    starts: Mapping[QuotaKind, int],
) -> Iterator[LeftOut]:
    """Yield who has no line because too many others are charged to the same caps."""
    for number, assigned in alike:
        for kind, each in assigned.items():
            there = np.flatnonzero(each.index >= 0)
            there = there[crowd[starts[kind] + each.index[there]]]
            if len(there):
                reason = (
                    f"of those under the same caps all but {MOST_FLOWS} are replayed as one, and use less than these"
                )
                yield LeftOut(
                    scenarios[number].name, kind.value, named(recording.clients[at] for at in there.tolist()), reason
                )


def _recorded_limits(recording: Recording, kind: QuotaKind, assignment: Assignment) -> Floats:
    """Return [2, unit] the least and the highest limit that each had while recorded; NaN: it was no counter then."""
    used = recording.used[kind]
    limits = np.full((2, len(assignment.units)), np.nan)
    units_of: dict[object, set[int]] = {}
    clients_of: dict[int, list[int]] = {}
    counters_of: dict[int, set[object]] = {}
    for client in np.flatnonzero(assignment.index >= 0).tolist():
        unit = int(assignment.index[client])
        counter = _counter(recording.clients[client], used.rules[client], kind)
        units_of.setdefault(counter, set()).add(unit)
        if used.caps[client] is not None or (assignment.caps[client] >= 0).any():
            counter = None  # caps decided too, or would
        counters_of.setdefault(unit, set()).add(counter)
        clients_of.setdefault(unit, []).append(client)
    for unit, counters in counters_of.items():
        [counter, *others] = counters
        if counter is not None and not others and len(units_of[counter]) == 1:
            mine = clients_of[unit]
            limits[:, unit] = used.least_limit[mine].min(), used.most_limit[mine].max()
    if any(mode != ENFORCE for mode in recording.circumstances.modes):
        limits[1] = np.nan  # meanwhile a limit held nobody, and was none
    return limits


def _counter(client: Client, rule: str | None, kind: QuotaKind) -> object:
    """Return what measured a client while it was recorded; None: nothing, or something that is not known."""
    if not rule:
        return None
    try:
        entity, shared = read_rule(rule)
        return recorded_unit(client, entity, kind, shared=shared)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class ReplayWork:
    """What a worker does with the units that it has got: a row of FIGURES for each ``scenario`` and ``unit``."""

    window: Window
    limits: Floats
    """[scenario, unit]."""
    recorded_limits: Floats
    """[2, unit]: the least and the highest."""

    @property
    def _scenarios(self) -> int:
        return len(self.limits)

    def __call__(self, gathered: Gathered) -> Iterator[pa.RecordBatch]:
        recorded = gathered.recorded
        of_before = before(recorded, gathered.throttles)
        limits = self.limits[:, gathered.units]
        window_s = self.window.keep_ms / 1000
        surge = recorded.low.surge_bytes(len(gathered.units), window_s)
        replayed = recorded.censored | (surge > limits.min(axis=0) * window_s)
        yield from self._untouched(gathered, np.flatnonzero(~replayed), of_before)
        for units in (np.flatnonzero(replayed & ~recorded.censored), np.flatnonzero(recorded.censored)):
            for stretch in stretches(recorded, units, self._scenarios):
                yield batch(gathered.units[stretch.units], of_before[:, stretch.units], self._after(gathered, stretch))

    def _after(self, gathered: Gathered, stretch: Stretch) -> Floats:
        """Return [figure of answer and AFTER, scenario, unit]."""
        units = gathered.units[stretch.units]
        limits = self.limits[:, units]
        low = stretch.replay(limits, self.window)
        high = stretch.replay(limits, self.window, high=True) if stretch.censored else low
        recorded = gathered.recorded
        muted_s = np.zeros(len(units))
        if stretch.censored:
            muted_s = recorded.low.sums(recorded.low.muted_s, len(gathered.units))[stretch.units]
        known = Known(tuple(recorded.answers[unit] for unit in stretch.units.tolist()), muted_s)
        return after(low, high, known, limits, self.recorded_limits[:, units], np.broadcast_to(units, limits.shape))

    def _untouched(self, gathered: Gathered, units: Indices, of_before: Floats) -> Iterator[pa.RecordBatch]:
        if len(units):
            of_after = np.zeros((1 + len(AFTER), self._scenarios, len(units)))
            low = gathered.recorded.low
            of_after[1 + AFTER.index("sent_bytes")] = low.sums(low.sent_bytes, len(gathered.units))[units]
            yield batch(gathered.units[units], of_before[:, units], of_after)


def _untouched(recording: Recording, charged: Charged, scenarios: int) -> Floats:
    """Return [figure, scenario, unit] as they are where nobody is ever throttled."""
    figures = np.zeros((len(FIGURES), scenarios, charged.units))
    seconds = recording.circumstances.seconds
    figures[FIGURES.index("active_s")] = np.minimum(charged.sums("rows"), seconds)
    figures[FIGURES.index("answer")] = ANSWERS.index(Answer.EXACT)
    figures[FIGURES.index("sent_bytes")] = charged.sums("sent_bytes")
    return figures


def _table(
    scenarios: Sequence[Scenario],
    alike: Sequence[tuple[int, Mapping[QuotaKind, Assignment]]],
    charged: Charged,
    figures: Floats,
    shown: Bools,
) -> Any:
    """Return the figures of the units that are ``shown``, with the names of what they are about."""
    sums = {name: pa.array(charged.sums(name)) for name in ("sent_bytes", "requests", "throttled")}
    tables = []
    for row, (number, assigned) in enumerate(alike):
        # Of its own: the same clients may be together by their client-id in one scenario, and by their user in another.
        units = [(kind, unit) for kind, each in assigned.items() for unit in each.units]
        places = [cluster_and_instance(unit.instance) for _, unit in units]
        rules = [rule for each in assigned.values() for rule in each.rules]
        limits = np.concatenate([each.limits for each in assigned.values()])
        columns = {
            "scenario": pa.array([scenarios[number].name] * len(units)),
            "kind": pa.array([kind.value for kind, _ in units]),
            "cluster": pa.array([cluster for cluster, _ in places]),
            "instance": pa.array([instance for _, instance in places]),
            "broker": pa.array([unit.broker for _, unit in units], pa.int32()),
            "user": pa.array([shown_user(unit) for _, unit in units]),
            "client_id": pa.array([shown_client_id(unit) for _, unit in units]),
            "ip": pa.array([unit.ip for _, unit in units]),
            "rule": pa.array([rule and rule.describe() for rule in rules], pa.string()),
            "limit": pa.array(limits, mask=np.isinf(limits)),
            "recorded_bytes": sums["sent_bytes"],
            "requests": sums["requests"],
            "before_throttled_requests": sums["throttled"],
        }
        for name, column in zip(FIGURES, figures[:, row], strict=True):
            columns[name] = pa.array(column)
        answers, verdicts = (figures[FIGURES.index(name), row].astype(int).tolist() for name in ("answer", "verdict"))
        columns["answer"] = pa.array([ANSWERS[each].value for each in answers])
        columns["verdict"] = pa.array([VERDICTS[each] for each in verdicts])
        described = [rule and rule.describe() for rule in rules]
        holds = figures[FIGURES.index("held_by"), row].astype(int).tolist()
        columns["held_by"] = pa.array([described[unit - 1] if unit else None for unit in holds], pa.string())
        tables.append(pa.table(columns).filter(pa.array(shown)))
    return pa.concat_tables(tables)


_CAP: Final = "cap:"


def shown_user(unit: Unit) -> str:
    """Return the user of a counter, as metrics name it: of a cap, ``cap:alice``."""
    return f"{_CAP}{unit.user}" if unit.several & CAP and unit.user else unit.user


def shown_client_id(unit: Unit) -> str:
    """Return the client-id of a counter, likewise: ``cap:batch-*`` where a cap is of no user."""
    return f"{_CAP}{unit.client_id}" if unit.several & CAP and not unit.user else unit.client_id
