"""Documents by somebody who wants no answer to succeed: refused, or harmless to a replay."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from analysis.demand.gathering import Gathered
from analysis.ingest.documents import UnreadableError, read, table
from analysis.ingest.faults import HEADER, bounds_of
from analysis.kernel.cells import Cells, SeriesRows
from analysis.kernel.series import Recorded
from analysis.kernel.target import parse_target
from analysis.recommend.searching import Searching
from analysis.schema import COLUMNS, FLAG, LIMIT, TEXT
from analysis.whatif.replaying import Replaying
from quotas.rate import Window
from tests.analysis.records import BEGIN_MS, Document, document, row

HUGE = [2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30, -1, -(2**63)]
SAID = {field.name: field for field in HEADER if field.type != TEXT and field.name != "time_ms"}
NUMBERS = [column for column in COLUMNS if column.type not in (TEXT, FLAG)]


@st.composite
def hostile(draw: st.DrawFn) -> Document:
    """Some fields and columns at the edge of what is taken, and sometimes beyond it."""
    beyond = draw(st.booleans())
    fields: dict[str, Any] = {}
    for name in draw(st.lists(st.sampled_from(sorted(SAID)), unique=True)):
        bounds = bounds_of(SAID[name], 0)
        assert bounds is not None
        fields[name] = draw(st.sampled_from([*map(int, bounds), *(HUGE if beyond else ())]))
    interval_ms = min(fields.get("interval_ms", 1000), 10**12)
    rows = []
    for _ in range(draw(st.integers(1, 4))):
        columns: dict[str, Any] = {"produce_rule": "user=eve", "produce_limit": 1e6}
        for column in draw(st.lists(st.sampled_from(NUMBERS), unique_by=lambda each: each.name)):
            bounds = bounds_of(column, interval_ms)
            assert bounds is not None
            edges = [1e-3, *bounds] if column.type == LIMIT else [int(bound) for bound in bounds]
            columns[column.name] = draw(st.sampled_from([*edges, *(HUGE if beyond else ())]))
        rows.append(row(draw(st.sampled_from(["eve", "mallory"])), "app", **columns))
    if beyond and draw(st.booleans()):
        fields["time_ms"] = draw(st.sampled_from([0, 1, BEGIN_MS * 1000, *HUGE]))
    return {**document(0, rows, second=draw(st.integers(0, 5))), **fields}


def taken(documents: Sequence[Document]) -> pa.Table | None:
    """What is stored of them, as workers are given it."""
    found = []
    for each in documents:
        try:
            found.append(read(json.dumps(each).encode(), BEGIN_MS + 86_400_000))
        except UnreadableError:
            continue
    return table(found) if found else None


def finite(values: Any) -> bool:
    return bool(np.isfinite(np.asarray(values, dtype=float)).all() and (np.asarray(values) >= 0).all())


@given(st.lists(hostile(), min_size=1, max_size=6), st.sampled_from([1e-3, 1e6, 1e32]))
def test_a_replay_is_of_numbers(documents: list[Document], limit: float) -> None:
    rows = taken(documents)
    if rows is None:
        return
    begin_ms = rows["time"].cast(pa.int64()).to_numpy() // 1000
    interval_ms = np.clip(rows["interval_ms"].to_numpy(), 1, 10_000)
    _, number = np.unique(rows["user"].to_numpy(zero_copy_only=False).astype(str), return_inverse=True)
    columns = [rows[f"produce_{name}"].to_numpy().astype(float) for name in ("bytes", "muted_ms")]
    cells = Cells.of(SeriesRows(number, begin_ms - begin_ms.min(), interval_ms, columns[0], columns[1]))
    units = int(number.max()) + 1
    requests = np.bincount(number, rows["produce_requests"].to_numpy(), units).astype(float)
    recorded = Recorded.of(cells, np.arange(units), requests, int(cells.second.max()) + 1)
    gathered = Gathered(np.arange(units), recorded)
    replaying = Replaying(Window(), np.full(units, limit), np.full((2, units), np.nan))
    for work in (replaying, Searching(Window(), parse_target("p99 throttle < 100 ms"))):
        found = work(gathered)
        assert all(finite(column) for column in found.columns), found


def test_who_used_nothing_needs_nothing_beside_one_who_did() -> None:
    number, begin_ms, interval_ms = np.arange(2), np.array([0, 30_000]), np.full(2, 1000)
    cells = Cells.of(SeriesRows(number, begin_ms, interval_ms, np.array([1e12, 0.0]), np.zeros(2)))
    recorded = Recorded.of(cells, number, np.ones(2), 31)
    found = Searching(Window(), parse_target("p99 throttle < 100 ms"))(Gathered(number, recorded))
    needed = found["needed"].to_pylist()
    assert needed[0] > 0
    assert needed[1] == 0
