import numpy as np
import pyarrow as pa
import pytest

from analysis.table import exchange
from analysis.table.exchange import PACKED, packed, unpacked


def test_rows_reach_their_task_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_PIECE_ROWS", 2)
    table = pa.table({"name": ["a", None, "c", "d", "\0", "ü"], "bytes": [1, 2, 3, 4, 5, 2**62]})
    pieces = list(packed(table, np.array([7, 0, 7, 7, 0, 7])))
    assert [piece["task"].to_pylist() for piece in pieces] == [[0], [7], [7]]
    assert all(piece.schema == PACKED for piece in pieces)
    received = [found.to_pylist() for piece in pieces for found in unpacked(iter(piece.to_batches()))]
    assert [[row["name"] for row in rows] for rows in received] == [[None, "\0"], ["a", "c"], ["d", "ü"]]
    assert received[-1][-1]["bytes"] == 2**62


def test_nothing_is_nothing() -> None:
    assert list(packed(pa.table({"bytes": pa.array([], pa.int64())}), np.zeros(0, dtype=np.intp))) == []
