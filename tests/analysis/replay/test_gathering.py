"""What a task makes of the rows that reach it, however few of them it turns into seconds at once."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from analysis.replay import gathering
from analysis.replay.gathering import Gathered, _Task
from analysis.replay.sending import SENT


def sent(seed: int) -> pa.Table:
    """Rows of two units: one in the series 0, the other in 1 and 3."""
    rng = np.random.default_rng(seed)
    series, count = rng.choice([0, 1, 3], 40), 40
    muted_ms = np.where(series == 3, rng.integers(0, 1000, count), 0)
    throttled = np.where(muted_ms > 0, rng.integers(0, 4, count), 0)
    intervals = rng.choice([137, 1000, 2500], count)
    columns = (series, rng.integers(0, 60_000, count), intervals, rng.integers(0, 10**6, count))
    return pa.table([*columns, muted_ms, throttled, throttled * 70], names=SENT.names).cast(SENT)


def gathered(table: pa.Table) -> Gathered:
    found: list[Gathered] = []

    def work(given: Gathered) -> Iterator[pa.RecordBatch]:
        found.append(given)
        return iter(())

    task = _Task(np.array([0, 2, 1, 2]), np.ones(4), np.array([10.0, 1.0, 20.0]), 63, work)
    assert list(task.run(table.slice(at, 3) for at in range(0, len(table), 3))) == []
    (only,) = found
    return only


@pytest.mark.parametrize(("waiting", "together"), [(1, 1), (7, 20), (7, 10**6)])
def test_rows_in_parts_are_the_rows(waiting: int, together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = gathered(sent(3))
    monkeypatch.setattr(gathering, "_WAITING_ROWS", waiting)
    monkeypatch.setattr(gathering, "TASK_ROWS", together)
    parts = gathered(sent(3))
    assert parts.units.tolist() == whole.units.tolist() == [0, 2]
    assert parts.recorded.requests.tolist() == [10, 20]
    for part, all_of_it in ((parts.recorded.low, whole.recorded.low), (parts.recorded.high, whole.recorded.high)):
        assert (part.number.tolist(), part.second.tolist()) == (all_of_it.number.tolist(), all_of_it.second.tolist())
        assert part.sent_bytes == pytest.approx(all_of_it.sent_bytes)
        assert part.muted_s == pytest.approx(all_of_it.muted_s)
    assert parts.throttles.throttle_s.tolist() == whole.throttles.throttle_s.tolist()
    assert parts.throttles.unit.tolist() == [1] * len(parts.throttles.unit)


def test_no_rows_are_no_work() -> None:
    task = _Task(np.zeros(0, dtype=np.intp), np.zeros(0), np.zeros(0), 1, lambda _: iter([pa.record_batch([])]))
    assert list(task.run(iter([]))) == []
