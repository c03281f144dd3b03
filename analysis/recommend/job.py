"""The smallest quotas under which what was recorded meets a target, for each user, client-id or pair of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Final

import numpy as np
import pyarrow as pa

from analysis.errors import AnalysisError
from analysis.kernel.censoring import Answer
from analysis.kernel.demand import Indices
from analysis.kernel.histogram import Floats
from analysis.kernel.refusals import Refusals, Rows, mutations
from analysis.kernel.search import (
    SCALES,
    Confidence,
    Measure,
    Target,
    confidence,
    enough,
    least_that,
    round_up,
    surge_window_s,
    with_headroom,
)
from analysis.kernel.series import Cells, Stretch
from analysis.kernel.units import Assignment, Client, Unit
from analysis.page.words import limit
from analysis.recommend.caps import said_of, under_caps
from analysis.replay.gathering import Gathered, Units, gather, gather_refusing
from analysis.replay.recording import REFUSING, Recording
from quotas.kinds import BYTES, QuotaKind, Whose
from quotas.rate import Window

FIGURES: Final = ("needed", "p99", "most", "surge", "active_s", "answer")
_ANSWERS: Final = tuple(Answer)
_ENOUGH_S: Final = 60
"""Of use: who was seen for less has too little data."""
_SHARED: Final = "sluice:other"
"""The client-id that clients beyond ``usage.max_clients`` share in records."""


class Per(StrEnum):
    """Whom quotas are for."""

    USER = "user"
    CLIENT_ID = "client-id"
    PAIR = "user,client-id"

    def of(self, user: str, client_id: str) -> str:
        """Return what ``--entities`` is matched with."""
        return {Per.USER: user, Per.CLIENT_ID: client_id, Per.PAIR: f"{user}/{client_id}"}[self]


@dataclass(frozen=True, slots=True)
class Choices:
    """How quotas are sized."""

    target: Target
    per: Per = Per.USER
    headroom: float = 0.15
    floor: float = 1000.0
    """Bytes per second: no quota is below."""
    entities: tuple[str, ...] = ()
    """Patterns with ``*`` and ``?``; none: everybody."""

    def least(self, kind: QuotaKind) -> float:
        """Return the least quota of a kind: ``floor`` is of those whose limits are bytes."""
        return self.floor if kind.row.unit is BYTES else 1.0


@dataclass(frozen=True, slots=True)
class Need:
    """What one entity needs of one kind, on the broker and proxy where it needs most. Rates are bytes per second."""

    kind: QuotaKind
    quota: float
    """With headroom, rounded up."""
    needed: float
    """0: less than the least quota, and not looked for."""
    unit: Unit
    p99: float
    """Of the seconds with use."""
    most: float
    """In any second."""
    surge: float
    """Over any window of enforcement."""
    now: str
    """What limits it now."""
    confidence: Confidence
    answer: Answer
    caps: tuple[str, ...] = ()
    """That its clients were charged to besides, while recorded."""
    held_by: str = ""
    """The cap that held them, where a cap did; "" where none did."""
    held_by_caps_alone: bool = False
    """Whatever held them was a cap: of its quota nothing was seen but that it did not."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """Quotas for one entity; ``refused`` says why it gets none."""

    user: str
    client_id: str
    """"" where that part plays no role, or was never sent."""
    needs: tuple[Need, ...]
    refused: str = ""


def recommend(recording: Recording, choices: Choices) -> list[Recommendation]:
    """Return a recommendation for each entity with use, by name. Raises AnalysisError where no entity is wanted."""
    units, wanted = _wanted(recording, choices)
    window = recording.circumstances.window
    entity_of, entities = _entities(units)
    most = enough(wanted.most_bytes(recording, surge_window_s(window)), window)
    total = wanted.sums(recording, "sent_bytes")
    least = np.zeros(len(entities))
    np.maximum.at(least, entity_of, total / recording.circumstances.seconds)
    # Where another broker's mean is more than all that could be needed here, this one does not decide.
    floor = np.array([choices.least(kind) for kind, _ in units])
    searched = (total > 0) & (most >= least[entity_of]) & (most * (1 + choices.headroom) > floor)
    held_up = wanted.only(searched).of_kinds([kind for kind in wanted.unit_of if kind not in REFUSING])
    refused = wanted.only(total > 0).of_kinds(REFUSING)
    controller, seconds = recording.circumstances.controller_window, recording.circumstances.seconds
    figures = np.zeros((len(FIGURES), len(units)))
    for found in (
        gather(recording, held_up, SearchWork(window, choices.target)),
        gather_refusing(recording, refused, BucketSearchWork(controller, choices.target, seconds)),
    ):
        if found.num_rows:
            figures[:, found["unit"].to_numpy()] = [found[name].to_numpy() for name in FIGURES]
    return _recommendations(recording, choices, units, wanted, figures)


def _wanted(recording: Recording, choices: Choices) -> tuple[list[tuple[QuotaKind, Unit]], Units]:
    by_user, by_client = choices.per is not Per.CLIENT_ID, choices.per is not Per.USER
    units: list[tuple[QuotaKind, Unit]] = []
    unit_of: dict[QuotaKind, Indices] = {}
    for kind, used in recording.used.items():
        if kind.row.whose is Whose.IP:
            continue
        chosen = [
            client
            for client in np.flatnonzero(used.sent_bytes > 0).tolist()
            if _is_wanted(recording.clients[client], choices)
        ]
        each = Assignment.each(
            (recording.clients[client] for client in chosen), kind, user=by_user, client_id=by_client
        )
        unit_of[kind] = np.full(len(recording.clients), -1)
        unit_of[kind][chosen] = each.index + len(units)
        units += [(kind, unit) for unit in each.units]
    if not units:
        patterns = " or ".join(choices.entities)
        raise AnalysisError(f"nobody who used anything matches --entities {patterns}: names are of each {choices.per}")
    return units, Units(unit_of, len(units))


def _is_wanted(client: Client, choices: Choices) -> bool:
    name = choices.per.of(client.user, client.client_id)
    return not choices.entities or any(fnmatchcase(name, pattern) for pattern in choices.entities)


def _entities(units: Sequence[tuple[QuotaKind, Unit]]) -> tuple[Indices, list[tuple[QuotaKind, str, str]]]:
    numbers: dict[tuple[QuotaKind, str, str], int] = {}
    index = [numbers.setdefault((kind, unit.user, unit.client_id), len(numbers)) for kind, unit in units]
    return np.array(index, dtype=np.intp), list(numbers)


@dataclass(frozen=True, slots=True)
class SearchWork:
    """What a worker does with the units that it has got: a row of FIGURES for each ``unit``."""

    window: Window
    target: Target

    def __call__(self, gathered: Gathered) -> Iterator[pa.RecordBatch]:
        recorded = gathered.recorded
        units = len(gathered.units)
        high = enough(recorded.high.surge_bytes(units, surge_window_s(self.window)), self.window)
        mean = recorded.low.sums(recorded.low.sent_bytes, units) / recorded.seconds
        needed = np.zeros(units)
        for chosen in (np.flatnonzero(~recorded.censored), np.flatnonzero(recorded.censored)):
            # Who used nothing needs nothing; beside huge values, the sums of others are lost, and say the same.
            for stretch in recorded.stretches(chosen[high[chosen] > 0], SCALES):
                needed[stretch.units] = self._needed(stretch, mean[stretch.units], high[stretch.units])
        window_s = self.window.keep_ms / 1000
        figures = (
            needed,
            *_rates(recorded.low, units),
            recorded.low.surge_bytes(units, window_s) / window_s,
            recorded.low.sums((recorded.low.sent_bytes > 0).astype(float), units),
            np.array([_ANSWERS.index(answer) for answer in recorded.answers], dtype=float),
        )
        columns = [pa.array(gathered.units, pa.int32()), *(pa.array(each, pa.float64()) for each in figures)]
        yield pa.RecordBatch.from_arrays(columns, names=["unit", *FIGURES])

    def _needed(self, stretch: Stretch, mean: Floats, high: Floats) -> Floats:
        def met(tried: Floats) -> Any:
            return self.target.met(stretch.replay(tried, self.window, high=True), self.window)

        return least_that(met, mean, high)


@dataclass(frozen=True, slots=True)
class BucketSearchWork:
    """The same of one unit whose limit is a token bucket."""

    window: Window
    target: Target
    seconds: int

    def __call__(self, unit: int, rows: Rows, refused: Floats) -> Iterator[pa.RecordBatch]:
        answer = Answer.EXACT
        if rows.muted_ms.any() or refused.any():
            answer = Answer.UNKNOWN if rows.held_at_the_end else Answer.INTERVAL
        demand = rows.earliest()
        total = float(rows.amount.sum())
        burst_s = self.window.keep_ms / 1000
        # In any time, a bucket lets through its burst and what comes meanwhile.
        surge = _surge(demand, self.window.keep_ms)

        def met(tried: Floats) -> Any:
            found = [mutations(demand, float(limit), self.window, self.seconds * 1000) for limit in tried[:, 0]]
            return np.array([[self._met(each, active_s)] for each in found])

        used = rows.amount > 0
        active_s = float(rows.interval_ms[used].sum()) / 1000
        needed = least_that(met, np.array([total / self.seconds]), np.array([surge / burst_s]))[0] if total else 0.0
        rates = rows.amount / (rows.interval_ms / 1000)
        p99 = float(np.quantile(rates[used], 0.99, method="inverted_cdf")) if used.any() else 0.0
        figures = (needed, p99, float(rates.max(initial=0.0)), surge / burst_s, active_s, _ANSWERS.index(answer))
        columns = [pa.array([unit], pa.int32()), *(pa.array([float(each)], pa.float64()) for each in figures)]
        yield pa.RecordBatch.from_arrays(columns, names=["unit", *FIGURES])

    def _met(self, found: Refusals, active_s: float) -> bool:
        """Throttle times and delays of a bucket are the same."""
        target = self.target
        if target.measure is Measure.SHARE:
            throttled_s = found.throttled_ms / 1000
            return throttled_s < target.most * max(active_s, throttled_s)
        return found.share_above(target.most) <= 1 - target.share


def _surge(rows: Rows, window_ms: int) -> float:
    """Return the most that came in intervals which begin within a window."""
    total = np.concatenate(([0.0], np.cumsum(rows.amount)))
    since = np.searchsorted(rows.begin_ms, rows.begin_ms - window_ms - rows.interval_ms)
    return float((total[1:] - total[since]).max(initial=0.0))


def _rates(cells: Cells, units: int) -> tuple[Floats, Floats]:
    """Return the p99 of the seconds with use, and the most, of each unit."""
    order = np.lexsort((cells.sent_bytes, cells.number))
    sent = cells.sent_bytes[order]
    starts = cells.starts(units)
    count = np.diff(starts)
    last = np.maximum(starts[1:] - 1, 0)
    rank = np.maximum(np.ceil(0.99 * count).astype(np.intp) - 1, 0)
    p99 = sent[np.minimum(starts[:-1] + rank, len(sent) - 1)]
    return np.where(count > 0, p99, 0), np.where(count > 0, sent[last], 0)


def _recommendations(
    recording: Recording,
    choices: Choices,
    units: Sequence[tuple[QuotaKind, Unit]],
    wanted: Units,
    figures: Floats,
) -> list[Recommendation]:
    found = dict(zip(FIGURES, figures, strict=True))
    recorded_s = (recording.circumstances.end_ms - recording.circumstances.begin_ms) / 1000
    seconds = wanted.sums(recording, "rows") * recording.circumstances.interval_ms / 1000
    now = _limits_now(recording, wanted)
    of_caps = under_caps(recording, wanted)
    of: dict[tuple[str, str], dict[QuotaKind, list[int]]] = {}
    for number, (kind, unit) in enumerate(units):
        of.setdefault((unit.user, unit.client_id), {}).setdefault(kind, []).append(number)
    made = []
    for (user, client_id), kinds in sorted(of.items()):
        needs = []
        for kind, numbers in kinds.items():
            decisive = max(numbers, key=lambda number: (found["needed"][number], seconds[number]))
            answer = max((_ANSWERS[int(found["answer"][number])] for number in numbers), key=_ANSWERS.index)
            quota = float(with_headroom(found["needed"][decisive], choices.headroom))
            needs.append(
                Need(
                    kind,
                    max(quota, float(round_up(choices.least(kind)))),
                    float(found["needed"][decisive]),
                    units[decisive][1],
                    float(found["p99"][decisive]),
                    float(found["most"][decisive]),
                    float(found["surge"][decisive]),
                    _said(kind, set().union(*(now[number] for number in numbers))),
                    confidence([answer], recorded_s)[0],
                    answer,
                    *said_of(of_caps, numbers),
                )
            )
        active_s = max(float(seconds[number]) for numbers in kinds.values() for number in numbers)
        made.append(Recommendation(user, client_id, tuple(needs), _refused(choices.per, user, client_id, active_s)))
    return made


def _refused(per: Per, user: str, client_id: str, active_s: float) -> str:
    if per is not Per.USER and not client_id:
        return "clients without a client-id cannot be named by a quota"
    if per is not Per.USER and client_id == _SHARED:
        return f"{_SHARED} stands for many client-ids (usage.max_clients)"
    if per is not Per.CLIENT_ID and not user:
        return "users without a name cannot be named by a quota"
    if active_s < _ENOUGH_S:
        return f"too little data: used in {active_s:.0f} s"
    return ""


def _limits_now(recording: Recording, wanted: Units) -> list[set[tuple[str | None, float, float]]]:
    """Return [unit] the rules, and the least and most of their limits, that held for its clients."""
    found: list[set[tuple[str | None, float, float]]] = [set() for _ in range(wanted.units)]
    for kind, unit in wanted.unit_of.items():
        used = recording.used[kind]
        for client in np.flatnonzero(unit >= 0).tolist():
            limits = (float(used.least_limit[client]), float(used.most_limit[client]))
            found[int(unit[client])].add((used.rules[client], *limits))
    return found


def _said(kind: QuotaKind, limits: set[tuple[str | None, float, float]]) -> str:
    if len(limits) > 1:
        return f"{len(limits)} different limits"
    rule, least, most = next(iter(limits))
    if rule is None:
        return "unlimited"
    if not rule or least != most:
        return "a limit that changed meanwhile"
    return f"{limit(kind, least)} by {rule}"
