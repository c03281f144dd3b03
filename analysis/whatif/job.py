"""What proposed quotas would have done to what was recorded: who would be throttled, before and after."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import pyarrow as pa

from analysis.kernel import histogram
from analysis.kernel.censoring import Answer, Known, throttled_bounds_s
from analysis.kernel.demand import Indices
from analysis.kernel.histogram import Floats
from analysis.kernel.series import Recorded, Stretch
from analysis.kernel.units import Assignment, Client, parse_rule, recorded_unit
from analysis.replay.gathering import Gathered, Throttles, Units, gather, gather_refusing
from analysis.replay.recording import REFUSING, Recording, cluster_and_instance
from analysis.whatif.figures import AFTER, ANSWERS, FIGURES, NO, POSSIBLY, SHARES, VERDICTS, YES
from analysis.whatif.refusing import RefusingWork
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy, Terms
from quotas.precedence import caps_of
from quotas.rate import Window

_PLAIN: Final = Terms()
_HISTOGRAMS: Final = 4096
"""Made at once."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Quotas to look at, and what to call them."""

    name: str
    policy: Policy
    unknown: frozenset[Entity] = frozenset()
    """Quotas with words that are not replayed: whom they hold is left out."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The answer: ``units`` is an Arrow table with a row for each scenario, kind and unit with use."""

    recording: Recording
    scenarios: tuple[Scenario, ...]
    units: Any


_REPLAYED: Final = frozenset(("shadow", "proposed", "shared"))
"""Of ``Terms``: what is in shadow or proposed holds nobody, and is replayed as that."""


def not_replayed(policy: Policy) -> dict[Entity, list[str]]:
    """Return the quotas that say something which no replay takes into account, and what: words of quota files.

    Whatever is new among the terms of rules is not replayed until somebody says here that it is.
    """
    found: dict[Entity, list[str]] = {}
    for entity in policy.limits:
        if entity.cap:
            found[entity] = ["cap"]
    for entity, terms in policy.terms.items():
        for term in fields(terms):
            differs = getattr(terms, term.name) != getattr(_PLAIN, term.name)
            if term.name not in _REPLAYED and differs:
                found.setdefault(entity, []).append(term.name.removesuffix("_ms"))
    return found


def whatif(recording: Recording, scenarios: Sequence[Scenario]) -> WhatIf:
    """Replay what was recorded against the quotas of each scenario."""
    together: dict[tuple[bytes, ...], list[tuple[int, Mapping[QuotaKind, Assignment]]]] = {}
    for number, scenario in enumerate(scenarios):
        assigned = {kind: _assigned(recording, scenario, kind) for kind in recording.used}
        key = tuple(assignment.index.tobytes() for assignment in assigned.values())
        together.setdefault(key, []).append((number, assigned))
    tables = [_replayed(recording, scenarios, alike) for alike in together.values()]
    return WhatIf(recording, tuple(scenarios), pa.concat_tables(tables))


def _assigned(recording: Recording, scenario: Scenario, kind: QuotaKind) -> Assignment:
    """Return who shares a counter, among those who used any; the others have index -1."""
    active = np.flatnonzero(recording.used[kind].rows)
    policy = scenario.policy
    if policy.table(kind, cap=True):
        held = [_is_capped(policy, kind, recording.clients[client]) for client in active.tolist()]
        active = active[~np.array(held, dtype=bool)]
    assignment = Assignment.of(policy, kind, (recording.clients[client] for client in active.tolist()))
    if scenario.unknown:
        known = [rule not in scenario.unknown for rule in assignment.rules]
        active = active[np.array([known[unit] for unit in assignment.index.tolist()], dtype=bool)]
        assignment = Assignment.of(policy, kind, (recording.clients[client] for client in active.tolist()))
    index = np.full(len(recording.clients), -1)
    index[active] = assignment.index
    return Assignment(assignment.units, assignment.rules, assignment.limits, index)


def _is_capped(policy: Policy, kind: QuotaKind, client: Client) -> bool:
    """Whether a cap holds for a client besides its quota."""
    caps, terms = policy.table(kind, cap=True), policy.terms_of(kind, cap=True)
    lengths, group = policy.prefix_lengths(kind, cap=True), policy.groups_of(kind, cap=True).get(client.user)
    return bool(caps_of(caps, terms, lengths, group, client.user, client.client_id))


def _replayed(
    recording: Recording, scenarios: Sequence[Scenario], alike: Sequence[tuple[int, Mapping[QuotaKind, Assignment]]]
) -> Any:
    """Replay scenarios in which the same clients share counters."""
    first = alike[0][1]
    starts = dict(zip(first, np.cumsum([0, *(len(each.units) for each in first.values())]).tolist(), strict=False))
    wanted = Units(
        {kind: np.where(each.index >= 0, each.index + starts[kind], -1) for kind, each in first.items()},
        sum(len(each.units) for each in first.values()),
    )
    limits = np.array([np.concatenate([each.limits for each in assigned.values()]) for _, assigned in alike])
    recorded = np.concatenate([_recorded_limits(recording, kind, each) for kind, each in first.items()])
    window = recording.circumstances.window
    window_s = window.keep_ms / 1000
    held = wanted.sums(recording, "muted_s") > 0
    replayed = held | (wanted.most_bytes(recording, window_s) > limits.min(axis=0) * window_s)
    held_up = wanted.only(replayed).of_kinds([kind for kind in wanted.unit_of if kind not in REFUSING])
    refused = wanted.only(held | np.isfinite(limits).any(axis=0)).of_kinds(REFUSING)
    figures = _untouched(recording, wanted, len(alike))
    for found in (
        gather(recording, held_up, ReplayWork(window, limits, recorded)),
        gather_refusing(recording, refused, RefusingWork.of(refused, limits, recording.circumstances)),
    ):
        if found.num_rows:
            at = (slice(None), found["scenario"].to_numpy(), found["unit"].to_numpy())
            figures[at] = np.array([found[name].to_numpy() for name in FIGURES])
    return _table(recording, scenarios, alike, wanted, figures)


def _recorded_limits(recording: Recording, kind: QuotaKind, assignment: Assignment) -> Floats:
    """Return the limit that each unit had while recorded; NaN: it changed, or the unit was no counter then."""
    used = recording.used[kind]
    limits = np.full(len(assignment.units), np.nan)
    units_of: dict[object, set[int]] = {}
    found: dict[int, set[tuple[object, float, float]]] = {}
    for client in np.flatnonzero(assignment.index >= 0).tolist():
        unit = int(assignment.index[client])
        counter = _counter(recording.clients[client], used.rules[client], kind)
        units_of.setdefault(counter, set()).add(unit)
        found.setdefault(unit, set()).add((counter, float(used.least_limit[client]), float(used.most_limit[client])))
    for unit, seen in found.items():
        counter, least, most = next(iter(seen))
        if len(seen) == 1 and least == most and counter is not None and len(units_of[counter]) == 1:
            limits[unit] = least
    return limits


def _counter(client: Client, rule: str | None, kind: QuotaKind) -> object:
    """Return what measured a client while it was recorded; None: nothing, or something that is not known."""
    if not rule:
        return None
    try:
        return recorded_unit(client, parse_rule(rule), kind)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class ReplayWork:
    """What a worker does with the units that it has got: a row of FIGURES for each ``scenario`` and ``unit``."""

    window: Window
    limits: Floats
    """[scenario, unit]."""
    recorded_limits: Floats

    @property
    def _scenarios(self) -> int:
        return len(self.limits)

    def __call__(self, gathered: Gathered) -> Iterator[pa.RecordBatch]:
        recorded = gathered.recorded
        before = _before(recorded, gathered.throttles)
        limits = self.limits[:, gathered.units]
        window_s = self.window.keep_ms / 1000
        surge = recorded.low.surge_bytes(len(gathered.units), window_s)
        replayed = recorded.censored | (surge > limits.min(axis=0) * window_s)
        yield from self._untouched(gathered, np.flatnonzero(~replayed), before)
        for units in (np.flatnonzero(replayed & ~recorded.censored), np.flatnonzero(recorded.censored)):
            for stretch in recorded.stretches(units, self._scenarios):
                yield self._batch(
                    gathered.units[stretch.units], before[:, stretch.units], self._after(gathered, stretch)
                )

    def _after(self, gathered: Gathered, stretch: Stretch) -> Floats:
        """Return [figure of answer and AFTER, scenario, unit]."""
        recorded = gathered.recorded
        limits = self.limits[:, gathered.units[stretch.units]]
        low = stretch.replay(limits, self.window)
        high = stretch.replay(limits, self.window, high=True) if stretch.censored else low
        answers = tuple(recorded.answers[unit] for unit in stretch.units.tolist())
        least_s, most_s = low.throttled_s, low.throttled_s
        if stretch.censored:
            muted_s = recorded.low.sums(recorded.low.muted_s, len(gathered.units))[stretch.units]
            known = Known(answers, muted_s)
            in_force = self.recorded_limits[gathered.units[stretch.units]]
            least_s, most_s = throttled_bounds_s(known, low, high, limits, in_force)
        verdict = np.where(low.ever_throttled, YES, np.where(high.ever_throttled, POSSIBLY, NO))
        answer = np.broadcast_to([float(ANSWERS.index(each)) for each in answers], verdict.shape)
        figures = [
            *(answer, low.throttled_s, least_s, most_s, low.episodes),
            *(low.throttle_s(share) for share in SHARES.values()),
            *(low.delay_s(share) for share in SHARES.values()),
            np.maximum(low.delay_s(SHARES["p99"]), high.delay_s(SHARES["p99"])),
            *(low.sent_bytes, low.waiting_bytes, low.peak_waiting_bytes, verdict),
        ]
        return np.array(figures, dtype=float)

    def _untouched(self, gathered: Gathered, units: Indices, before: Floats) -> Iterator[pa.RecordBatch]:
        if len(units):
            after = np.zeros((1 + len(AFTER), self._scenarios, len(units)))
            low = gathered.recorded.low
            after[1 + AFTER.index("sent_bytes")] = low.sums(low.sent_bytes, len(gathered.units))[units]
            yield self._batch(gathered.units[units], before[:, units], after)

    def _batch(self, units: Indices, before: Floats, after: Floats) -> pa.RecordBatch:
        shape = (self._scenarios, len(units))
        scenario, unit = np.broadcast_arrays(np.arange(self._scenarios)[:, None], units)
        columns = [*(np.broadcast_to(each, shape) for each in before), *after]
        return pa.RecordBatch.from_arrays(
            [
                pa.array(scenario.ravel(), pa.int32()),
                pa.array(unit.ravel(), pa.int32()),
                *(pa.array(np.ravel(column), pa.float64()) for column in columns),
            ],
            names=["scenario", "unit", *FIGURES],
        )


def _before(recorded: Recorded, throttles: Throttles) -> Floats:
    """Return [figure of BEFORE, unit]."""
    cells = recorded.low
    units = len(recorded.answers)
    muted = cells.muted_s > 0
    used = muted | (cells.sent_bytes > 0)
    goes_on = np.zeros(len(muted), dtype=bool)
    goes_on[1:] = muted[:-1] & (np.diff(cells.number) == 0) & (np.diff(cells.second) == 1)
    return np.array(
        [
            np.bincount(cells.number[used], minlength=units),
            cells.sums(cells.muted_s, units),
            np.bincount(cells.number[muted & ~goes_on], minlength=units),
            *_quantiles_s(throttles, recorded.requests),
        ],
        dtype=float,
    )


def _quantiles_s(throttles: Throttles, requests: Floats) -> Floats:
    """Return [quantile, unit] of the throttle times that requests were given, 0 for most of them."""
    found = np.zeros((len(SHARES), len(requests)))
    throttled, column = np.unique(throttles.unit, return_inverse=True)
    order = np.argsort(column, kind="stable")
    ends = np.searchsorted(column[order], np.arange(len(throttled) + 1))
    for at in range(0, len(throttled), _HISTOGRAMS):
        units = throttled[at : at + _HISTOGRAMS]
        part = order[ends[at] : ends[at + len(units)]]
        counted = np.zeros((len(units), histogram.BINS))
        histogram.add(counted, column[part] - at, throttles.throttle_s[part], throttles.requests[part])
        counted[:, 0] += np.maximum(requests[units] - counted.sum(axis=1), 0)
        found[:, units] = [histogram.quantile_s(counted, share) for share in SHARES.values()]
    return found


def _untouched(recording: Recording, wanted: Units, scenarios: int) -> Floats:
    """Return [figure, scenario, unit] as they are where nobody is ever throttled."""
    figures = np.zeros((len(FIGURES), scenarios, wanted.units))
    seconds = recording.circumstances.seconds
    figures[FIGURES.index("active_s")] = np.minimum(wanted.sums(recording, "rows"), seconds)
    figures[FIGURES.index("answer")] = ANSWERS.index(Answer.EXACT)
    figures[FIGURES.index("sent_bytes")] = wanted.sums(recording, "sent_bytes")
    return figures


def _table(
    recording: Recording,
    scenarios: Sequence[Scenario],
    alike: Sequence[tuple[int, Mapping[QuotaKind, Assignment]]],
    wanted: Units,
    figures: Floats,
) -> Any:
    """Return the figures with the names of what they are about."""
    sums = {name: pa.array(wanted.sums(recording, name)) for name in ("sent_bytes", "requests", "throttled")}
    tables = []
    for row, (number, assigned) in enumerate(alike):
        # Of its own: the same clients may be together by their client-id in one scenario, and by their user in another.
        units = [(kind, unit) for kind, each in assigned.items() for unit in each.units]
        places = [cluster_and_instance(unit.instance) for _, unit in units]
        rules = [rule for each in assigned.values() for rule in each.rules]
        limits = np.concatenate([each.limits for each in assigned.values()])
        named = {
            "scenario": pa.array([scenarios[number].name] * len(units)),
            "kind": pa.array([kind.value for kind, _ in units]),
            "cluster": pa.array([cluster for cluster, _ in places]),
            "instance": pa.array([instance for _, instance in places]),
            "broker": pa.array([unit.broker for _, unit in units], pa.int32()),
            "user": pa.array([unit.user for _, unit in units]),
            "client_id": pa.array([unit.client_id for _, unit in units]),
            "ip": pa.array([unit.ip for _, unit in units]),
            "rule": pa.array([rule and rule.describe() for rule in rules], pa.string()),
            "limit": pa.array(limits, mask=np.isinf(limits)),
            "recorded_bytes": sums["sent_bytes"],
            "requests": sums["requests"],
            "before_throttled_requests": sums["throttled"],
        }
        for name, column in zip(FIGURES, figures[:, row], strict=True):
            named[name] = pa.array(column)
        answers, verdicts = (figures[FIGURES.index(name), row].astype(int).tolist() for name in ("answer", "verdict"))
        named["answer"] = pa.array([ANSWERS[each].value for each in answers])
        named["verdict"] = pa.array([VERDICTS[each] for each in verdicts])
        tables.append(pa.table(named))
    return pa.concat_tables(tables)
