"""A warehouse that lacks rows, or has some twice, has no figures."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.analysis.generated import SUMS, Generated
from bench.analysis.oracle import require_all
from bench.errors import BenchError

ROWS, DOCUMENTS = 6, 3


@pytest.fixture
def world(tmp_path: Path) -> Generated:
    tables: dict[str, dict[str, list[object]]] = {
        "usage": {"key": [1] * ROWS, **{name: [1] * ROWS for name in SUMS}},
        "keys": {"key": [1, 1], "instance": ["edge-1"] * 2},
        "documents": {
            "instance": ["edge-1"] * DOCUMENTS,
            "boot": ["b"] * DOCUMENTS,
            "seq": [*range(DOCUMENTS)],
        },
    }
    world = Generated(tmp_path, ROWS, DOCUMENTS, 1, ROWS, dict.fromkeys(SUMS, ROWS))
    for name, columns in tables.items():
        folder = world.warehouse / name / "date=2026-01-05" / "hour=0" / "batch=one-0"
        folder.mkdir(parents=True)
        pq.write_table(pa.table(columns), folder / "part-0.parquet")
    return world


def test_complete_warehouse_passes_the_oracle(world: Generated) -> None:
    require_all(world)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rows": 7}, "rows 6 instead of 7$"),
        ({"documents": 4}, "documents 3 instead of 4$"),
        ({"sums": dict.fromkeys(SUMS, ROWS) | {"fetch_bytes": 5}}, "fetch_bytes 6 instead of 5$"),
    ],
)
def test_incomplete_or_doubled_warehouse_fails_the_oracle(
    world: Generated, change: dict[str, object], said: str
) -> None:
    with pytest.raises(BenchError, match=said):
        require_all(replace(world, **change))  # type: ignore[arg-type]
