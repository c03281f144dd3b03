"""What proposed caps would have done: who is charged to several counters at once is replayed with all that share any.

A *flow* is what clients have in common that are charged to the same counters; flows with a counter in common, by
whichever others, are a *component*, and are replayed in one task (``analysis.kernel.network``).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from analysis.kernel.cells import Cells
from analysis.kernel.censoring import Answer, Known
from analysis.kernel.demand import Bools, Indices
from analysis.kernel.histogram import Floats
from analysis.kernel.network import Network
from analysis.kernel.series import Recorded
from analysis.kernel.stretch import stretch as stretch_of
from analysis.kernel.units import Assignment
from analysis.replay.gathering import Gathered, Throttles, Units
from analysis.replay.recording import REFUSING, Recording
from analysis.whatif.figures import ANSWERS
from analysis.whatif.held import after, batch, before
from quotas.kinds import QuotaKind
from quotas.rate import Window

MOST_FLOWS: Final = 400
"""Of a component, before those who use least are taken together."""
_COLUMNS: Final = 1024
"""Flows times scenarios that are replayed at once; at least one component."""


@dataclass(frozen=True, slots=True)
class Flows:
    """The flows of all components in which a cap may hold."""

    of_client: Mapping[QuotaKind, Indices]
    """[client], -1: in none."""
    counters: Indices
    """[level, flow]: units, -1 for none."""
    component: Indices
    """[flow], from 0."""
    weight: Floats
    """[flow]: connections times the mean size of a request."""
    units: Bools
    """[unit]: whether it is replayed so."""
    crowd: Bools
    """[unit]: of clients that are charged to their caps as one flow, and have no line of their own."""

    @property
    def wanted(self) -> Units:
        """Return what has to be gathered."""
        return Units(self.of_client, self.counters.shape[1])


def flows(
    recording: Recording, assigned: Mapping[QuotaKind, Assignment], starts: Mapping[QuotaKind, int], may_hold: Bools
) -> Flows:
    """Return the flows of units, numbered from ``starts`` of each kind; ``may_hold`` [unit]: it may be exceeded."""
    of_client: dict[QuotaKind, Indices] = {}
    found: list[list[int]] = []
    component: list[int] = []
    weight: list[float] = []
    crowd = np.zeros(len(may_hold), dtype=bool)
    for kind, each in assigned.items():
        if kind in REFUSING or not each.caps.size:
            continue
        of_client[kind] = np.full(len(each.index), -1)
        start, used = starts[kind], recording.used[kind]
        size = np.divide(used.sent_bytes, used.requests, out=np.ones(len(used.requests)), where=used.requests > 0)
        turns = np.maximum(recording.connections, 1) * np.maximum(size, 1)
        for clients in _live(each, may_hold[start : start + len(each.units)]):
            keys = np.column_stack((each.index, each.caps))[clients]
            keys, merged = _crowded(keys, used.sent_bytes[clients], may_hold[start : start + len(each.units)])
            crowd[start + merged] = True
            rows, flow = np.unique(keys, axis=0, return_inverse=True)
            flow = flow.ravel()
            of_client[kind][clients] = len(found) + flow
            weight += np.bincount(flow, turns[clients], len(rows)).tolist()
            component += [component[-1] + 1 if component else 0] * len(rows)
            found += np.where(rows >= 0, rows + start, -1).tolist()
    counters = np.full((max(map(len, found), default=1), len(found)), -1, dtype=np.intp)
    for number, levels in enumerate(found):
        counters[: len(levels), number] = levels
    units = crowd.copy()
    units[counters[counters >= 0]] = True
    return Flows(of_client, counters, np.array(component, dtype=np.intp), np.array(weight), units, crowd)


def _live(each: Assignment, may_hold: Bools) -> Iterator[Indices]:
    """Yield the clients of each component in which a cap may hold anybody."""
    none = len(each.units)
    keys = np.column_stack((each.index, each.caps))
    keys = np.where(keys < 0, none, keys)
    label = np.arange(none + 1)
    while True:
        least = label[keys].min(axis=1)
        joined = label.copy()
        for level in keys.T:
            np.minimum.at(joined, level, least)
        joined[none] = none
        if (joined == label).all():
            break
        label = joined
    caps = np.unique(each.caps[each.caps >= 0])
    live = np.unique(label[caps[may_hold[caps]]])
    mine = label[keys[:, 0]]
    order = np.argsort(mine, kind="stable")
    ends = np.searchsorted(mine[order], [live, live + 1])
    for begin, end in ends.T.tolist():
        yield order[begin:end]


def _crowded(keys: Indices, sent: Floats, may_hold: Bools) -> tuple[Indices, Indices]:
    """Return the counters of each client, of a crowd without those of the least quotas that hold nobody; and these."""
    units, of_client = np.unique(keys[:, 0], return_inverse=True)
    if len(units) <= MOST_FLOWS:
        return keys, np.zeros(0, dtype=np.intp)
    by_use = np.argsort(-np.bincount(of_client.ravel(), sent), kind="stable")
    least = units[by_use[MOST_FLOWS - 1 :]]
    merged = least[~may_hold[least]]
    keys = keys.copy()
    keys[np.isin(keys[:, 0], merged), 0] = -1
    return keys, merged


@dataclass(frozen=True, slots=True)
class CappedWork:
    """What a worker does with the flows that it has got: a row of FIGURES for each ``scenario`` and counter."""

    window: Window
    limits: Floats
    """[scenario, unit]."""
    counters: Indices
    """[level, flow]."""
    component: Indices
    weight: Floats

    def __call__(self, gathered: Gathered) -> Iterator[pa.RecordBatch]:
        component = self.component[gathered.units]
        order = np.argsort(component, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(component[order])) + 1)
        waiting: list[Indices] = []
        for part in parts:
            if waiting and (sum(map(len, waiting)) + len(part)) * len(self.limits) > _COLUMNS:
                yield self._replayed(gathered, np.concatenate(waiting))
                waiting = []
            waiting.append(part)
        yield self._replayed(gathered, np.concatenate(waiting))

    def _replayed(self, gathered: Gathered, mine: Indices) -> pa.RecordBatch:
        """Replay some flows, by their places in what was gathered: all of their components."""
        recorded = gathered.recorded
        levels = self.counters[:, gathered.units[mine]]
        units, local = np.unique(levels, return_inverse=True)
        local = local.reshape(levels.shape)
        if units[0] < 0:
            units, local = units[1:], local - 1
        together = _together(recorded, mine, local, len(units))
        network = Network(local, together.request_bytes, self.weight[gathered.units[mine]])
        limits = self.limits[:, units]
        stretch = stretch_of(recorded, mine)
        low = stretch.replay(limits, self.window, network=network)
        high = stretch.replay(limits, self.window, high=True, network=network) if stretch.censored else low
        held_s = low.held_s if low.held_s is not None and low.held_s.any() else high.held_s
        holds = np.full(limits.shape, -1.0)
        if held_s is not None:
            for scenario in range(len(limits)):
                holds[scenario] = _longest(held_s[scenario], local, units)
        # What one limit meant for a counter while it was recorded, others may have decided.
        in_force = np.full((2, len(units)), np.nan)
        throttles = _spread(gathered.throttles, mine, local)
        known = Known(together.answers, together.low.sums(together.low.muted_s, len(units)))
        figures = after(low, high, known, limits, in_force, holds)
        return batch(units, before(together, throttles), figures)


def _together(recorded: Recorded, mine: Indices, local: Indices, count: int) -> Recorded:
    """Return what is known of the counters, from what is of their flows."""
    low, high = Cells.none(), Cells.none()
    requests, peak, answers = np.zeros((3, count))
    number = np.full(len(recorded.answers), -1)
    of_flow = np.array([ANSWERS.index(recorded.answers[flow]) for flow in mine.tolist()], dtype=float)
    for level in local:
        there = level >= 0
        number[:] = -1
        number[mine[there]] = level[there]
        low, high = (
            whole.plus(some.where(number[some.number] >= 0).renumbered(number))
            for whole, some in ((low, recorded.low), (high, recorded.high))
        )
        np.add.at(requests, level[there], recorded.requests[mine[there]])
        np.add.at(peak, level[there], recorded.peak_bytes_per_s[mine[there]])
        np.maximum.at(answers, level[there], of_flow[there])
    total = low.sums(low.sent_bytes, count)
    known = tuple(Answer(ANSWERS[int(each)]) for each in answers.tolist())
    request = np.maximum(total / np.maximum(requests, 1), 1)
    return Recorded(low, high, known, recorded.seconds, requests, request, peak)


def _spread(throttles: Throttles, mine: Indices, local: Indices) -> Throttles:
    """Return the throttle times of flows as those of each of their counters."""
    place = np.full(int(max(mine.max(), throttles.unit.max(initial=0))) + 1, -1)
    place[mine] = np.arange(len(mine))
    flow = place[throttles.unit]
    found = [(flow >= 0) & (level[flow] >= 0) for level in local]
    return Throttles(
        np.concatenate([level[flow[some]] for level, some in zip(local, found, strict=True)]),
        np.concatenate([throttles.throttle_s[some] for some in found]),
        np.concatenate([throttles.requests[some] for some in found]),
    )


def _longest(held_s: Floats, local: Indices, units: Indices) -> Floats:
    """Return [counter] which unit held what is charged to it for longest, -1 where none did."""
    count = len(units)
    by_pair = np.zeros((count, count))
    for level, held in zip(local, held_s, strict=True):
        for counter in local:
            there = (level >= 0) & (counter >= 0)
            np.add.at(by_pair, (counter[there], level[there]), held[there])
    best = by_pair.argmax(axis=1)
    longest = by_pair[np.arange(count), best]
    return np.where(longest > 0, units[best].astype(float), -1.0)
