"""What proposed quotas would have done to what is refused, and not held: partitions, and connections of addresses."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from analysis.kernel.censoring import Answer
from analysis.kernel.demand import Indices
from analysis.kernel.histogram import Floats
from analysis.kernel.refusals import Law, Refusals, Rows, connections, mutations
from analysis.replay.gathering import Units
from analysis.replay.recording import REFUSING, Circumstances
from analysis.whatif.figures import ANSWERS, FIGURES, NO, POSSIBLY, SHARES, YES
from quotas.kinds import Law as KindsLaw
from quotas.kinds import QuotaKind
from quotas.rate import Window

_ENDLESS: Final = 1e300


@dataclass(frozen=True, slots=True)
class RefusingWork:
    """What a worker does with one unit: a row of FIGURES for each ``scenario``."""

    of_unit: Mapping[int, QuotaKind]
    limits: Floats
    """[scenario, unit]."""
    window: Window
    controller_window: Window
    seconds: int

    @classmethod
    def of(cls, wanted: Units, limits: Floats, circumstances: Circumstances) -> "RefusingWork":
        """Take what is to be looked at: units of the kinds that refuse."""
        of_unit: dict[int, QuotaKind] = {}
        for kind in REFUSING:
            unit: Indices = wanted.unit_of.get(kind, np.zeros(0, dtype=np.intp))
            of_unit |= dict.fromkeys(unit[unit >= 0].tolist(), kind)
        return cls(of_unit, limits, circumstances.window, circumstances.controller_window, circumstances.seconds)

    def __call__(self, unit: int, rows: Rows, refused: Floats) -> Iterator[pa.RecordBatch]:
        is_bucket = self.of_unit[unit].row.law is KindsLaw.TOKEN_BUCKET
        law, window = (mutations, self.controller_window) if is_bucket else (connections, self.window)
        # Who was refused may have come again for it: what was asked for without that is at least what passed.
        least = rows if is_bucket else replace(rows, amount=np.maximum(rows.amount - refused, 0))
        most = rows.earliest() if is_bucket else rows
        held = bool((rows.muted_ms > 0).any() or refused.any())
        answer = Answer.EXACT if not held else Answer.INTERVAL
        if is_bucket and rows.held_at_the_end:
            answer = Answer.UNKNOWN
        before = _before(rows)
        found = []
        for scenario in range(len(self.limits)):
            limit = float(self.limits[scenario, unit])
            low, high = (self._replayed(law, each, limit, window) for each in (least, most))
            figures = [*self._after(low, high, answer, is_bucket=is_bucket)]
            held_by = unit + 1 if figures[-1] != NO else 0
            found.append([*before, float(ANSWERS.index(answer)), *figures, held_by])
        columns = [
            pa.array(range(len(found)), pa.int32()),
            pa.array([unit] * len(found), pa.int32()),
            *(pa.array(column, pa.float64()) for column in zip(*found, strict=True)),
        ]
        yield pa.RecordBatch.from_arrays(columns, names=["scenario", "unit", *FIGURES])

    def _replayed(self, law: Law, rows: Rows, limit: float, window: Window) -> Refusals:
        if limit >= _ENDLESS:
            total = float(rows.amount.sum())
            return Refusals(asked=total, passed=total)
        return law(rows, limit, window, self.seconds * 1000)

    def _after(self, low: Refusals, high: Refusals, answer: Answer, *, is_bucket: bool) -> Iterator[float]:
        throttles = [low.throttle_s(share) for share in SHARES.values()]
        delays = throttles if is_bucket else [0.0] * len(SHARES)
        most_s = float(self.seconds) if answer is Answer.UNKNOWN else max(low.throttled_ms, high.throttled_ms) / 1000
        yield from (low.throttled_ms / 1000, min(low.throttled_ms, high.throttled_ms) / 1000, most_s, low.episodes)
        yield from throttles
        yield from delays
        yield max(delays[-1], high.throttle_s(SHARES["p99"])) if is_bucket else 0.0
        yield from (low.passed, low.waiting, low.peak_waiting)
        yield YES if low.throttled_ms else POSSIBLY if high.throttled_ms else NO


def _before(rows: Rows) -> tuple[float, ...]:
    """Return the figures of BEFORE."""
    muted = rows.muted_ms > 0
    ends = rows.begin_ms + rows.interval_ms
    goes_on = np.zeros(len(muted), dtype=bool)
    goes_on[1:] = muted[:-1] & (rows.begin_ms[1:] - ends[:-1] < 1000)
    used_s = float(np.minimum(rows.interval_ms, 1000)[(rows.amount > 0) | muted].sum()) / 1000
    return used_s, float(rows.muted_ms.sum()) / 1000, float((muted & ~goes_on).sum()), *(0.0 for _ in SHARES)
