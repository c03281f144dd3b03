"""Runs what-if: gold's sums answer most counters, and the rows of the others are replayed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from analysis.demand.counters import Counters
from analysis.demand.rows import Rows
from analysis.demand.sums import ENFORCE, Circumstances, Sums
from analysis.kernel.arrays import Floats
from analysis.kernel.censoring import Answer
from analysis.kernel.units import Assignment, ClientOnBroker, Unit, read_rule, recorded_unit
from analysis.whatif.figures import FIGURES, Replay, Verdict
from analysis.whatif.scenarios import LeftOut, Scenario, assign
from quotas.kinds import QuotaKind

_NAMES: Final = ("cluster", "instance", "user", "client_id")


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The result. ``units`` is an Arrow table with a row for each scenario, kind and unit with use."""

    circumstances: Circumstances
    scenarios: tuple[Scenario, ...]
    units: pa.Table
    left_out: tuple[LeftOut, ...]
    replayed: int
    """The number of units that were replayed."""


@dataclass(frozen=True, slots=True)
class _Assigned:
    """The counters of one kind under the quotas of one scenario."""

    scenario: str
    kind: QuotaKind
    assignment: Assignment


def whatif(sums: Sums, scenarios: Sequence[Scenario], rows: Rows) -> WhatIf:
    """Compare the scenarios; ``rows`` are read only if sums do not answer all units."""
    assigned: list[_Assigned] = []
    left_out: list[LeftOut] = []
    for scenario in scenarios:
        for kind in sums.used:
            assignment, without = assign(sums, scenario, kind)
            assigned.append(_Assigned(scenario.name, kind, assignment))
            left_out += without
    starts = np.cumsum([0, *(len(each.assignment.units) for each in assigned)]).tolist()
    parts = [
        (each.kind, np.where(each.assignment.index >= 0, each.assignment.index + start, -1))
        for each, start in zip(assigned, starts, strict=False)
    ]
    units = Counters(parts, starts[-1])
    limits = np.concatenate([np.zeros(0), *(each.assignment.limits for each in assigned)])
    window = sums.circumstances.window
    # A unit that was never held up, and never had more than the limit in any window, would not have been throttled.
    held = units.total(sums, "muted_s") > 0
    replayed = held | (units.surge(sums) > limits * (window.keep_ms / 1000))
    figures = _untouched(sums, units)
    if replayed.any():
        in_force = np.hstack([_limits_in_force(sums, each) for each in assigned])
        answered, found = rows.replayed(sums, units.only(replayed), Replay(window, limits, in_force), FIGURES)
        figures[:, answered] = found
    table = _table(sums, assigned, units, limits, dict(zip(FIGURES, figures, strict=True)))
    return WhatIf(sums.circumstances, tuple(scenarios), table, tuple(left_out), int(replayed.sum()))


def _untouched(sums: Sums, units: Counters) -> Floats:
    """Return [figure, unit] for units that are never throttled."""
    figures = np.zeros((len(FIGURES), units.units))
    figures[FIGURES.index("active_s")] = units.active_s(sums)
    figures[FIGURES.index("sent_bytes")] = units.total(sums, "used")
    return figures


def _limits_in_force(sums: Sums, assigned: _Assigned) -> Floats:
    """Return [2, unit] the lowest and the highest recorded limit; NaN if the unit was not a counter while recorded."""
    used, assignment = sums.used[assigned.kind], assigned.assignment
    limits = np.full((2, len(assignment.units)), np.nan)
    units_of: dict[Unit | None, set[int]] = {}
    clients_of: dict[int, list[int]] = {}
    counters_of: dict[int, set[Unit | None]] = {}
    for client in np.flatnonzero(assignment.index >= 0).tolist():
        unit = int(assignment.index[client])
        counter = _counter(sums.clients[client], used.rules[client])
        units_of.setdefault(counter, set()).add(unit)
        counters_of.setdefault(unit, set()).add(counter)
        clients_of.setdefault(unit, []).append(client)
    for unit, counters in counters_of.items():
        [counter, *others] = counters
        mine = clients_of[unit]
        if counter is not None and not others and len(units_of[counter]) == 1 and not used.capped[mine].any():
            limits[:, unit] = used.least_limit[mine].min(), used.most_limit[mine].max()
    if any(mode != ENFORCE for mode in sums.circumstances.modes):
        limits[1] = np.nan  # limits were not enforced all the time
    return limits


def _counter(client: ClientOnBroker, rule: str | None) -> Unit | None:
    """Return the counter of a client while recorded; None: there was none, or its rule cannot be read."""
    if not rule:
        return None
    try:
        entity, shared = read_rule(rule)
        return recorded_unit(client, entity, shared=shared)
    except ValueError:  # written by a later version
        return None


def _table(
    sums: Sums, assigned: Sequence[_Assigned], counters: Counters, limits: Floats, figures: Mapping[str, Floats]
) -> pa.Table:
    """Return the figures of all units with their names."""
    units = [(each, unit) for each in assigned for unit in each.assignment.units]
    rules = [rule and rule.describe() for each in assigned for rule in each.assignment.rules]
    names = {name: pa.array([getattr(unit, name) for _, unit in units], pa.string()) for name in _NAMES}
    return pa.table(
        {
            "scenario": pa.array([each.scenario for each, _ in units], pa.string()),
            "kind": pa.array([each.kind.value for each, _ in units], pa.string()),
            **names,
            "broker": pa.array([unit.broker for _, unit in units], pa.int32()),
            "rule": pa.array(rules, pa.string()),
            "limit": pa.array(limits, mask=np.isinf(limits)),
            "recorded_bytes": pa.array(counters.total(sums, "used")),
            "requests": pa.array(counters.total(sums, "requests")),
            "before_throttled_requests": pa.array(counters.total(sums, "throttled")),
            **{name: pa.array(column) for name, column in figures.items()},
            "answer": pa.array([Answer(int(each)).word for each in figures["answer"]], pa.string()),
            "verdict": pa.array([Verdict(int(each)).word for each in figures["verdict"]], pa.string()),
        }
    )
