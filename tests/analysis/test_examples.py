"""What the documentation shows of the warehouse runs: SQL by both engines, and the notebook, on three busy minutes."""

import json
import re
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from analysis.ingest.known import Hour
from analysis.ingest.publishing import Publication
from analysis.metrics.episodes import episodes
from analysis.spark.folder import Folder
from analysis.table import results
from analysis.table import warehouse as tables
from analysis.table.parquet import encode
from analysis.table.schema import FILE
from tests.analysis.records import document, muted_of, row, stored

pytestmark = pytest.mark.spark

DOCS = Path(__file__).parents[2] / "docs"
GAP_MS = 11_000
MUTED_S = {5, 6, 17, 40, 41}
"""Two episodes: the gap between 6 and 17 is ten seconds, that between 17 and 40 is 22."""


def in_second(second: int) -> dict[str, Any]:
    """A second of alice, who is held now and then, and of bob, who is not."""
    held: dict[str, Any] = {
        "produce_muted_ms": 400,
        "produce_throttled": 2,
        "produce_limit": 1e6,
        "produce_rule": "user=alice",
    }
    alice = row("alice", bytes_in=2**30, bytes_out=1, requests=3, **(held if second in MUTED_S else {}))
    return document(second, [alice, row("bob", "b", bytes_in=1, bytes_out=2**30)])


@pytest.fixture(scope="module")
def place(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse, with the episodes of a report beside it."""
    place = tmp_path_factory.mktemp("examples") / "usage"
    tables.create(spark, str(place))
    publication = Publication(Folder(spark, tables.path_of(str(place), tables.USAGE)), "stream-0")
    seconds = [in_second(second) for second in range(60)]
    publication.add(Hour.of(seconds[0]["time_ms"]), encode(pa.Table.from_pylist(stored(seconds), FILE)))
    publication.publish()
    found = episodes(muted_of(tables.usage(spark, str(place))).whole(), GAP_MS)
    results.write(Folder(spark, f"{place}-reports/report=20260301T120000Z-20260301T120100Z"), "episodes", found)
    return place


def statements(place: Path) -> dict[str, tuple[str, ...]]:
    """The blocks of SQL, each with its engines."""
    text = (DOCS / "analysis-sql.md").read_text(encoding="utf-8").replace("'usage", f"'{place}")
    blocks = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    engines = {"-- DuckDB": ("duckdb",), "-- Spark SQL": ("spark",)}
    return {block: engines.get(block.splitlines()[0], ("duckdb", "spark")) for block in blocks}


def test_sql(spark: SparkSession, place: Path) -> None:
    """Both engines answer the same, and the episodes are those of the report."""
    duck = duckdb.connect()
    duck.execute("SET TimeZone = 'UTC'")
    answers: list[list[tuple[Any, ...]]] = []
    for block, engines in statements(place).items():
        found = []
        for statement in filter(str.strip, block.split(";")):
            found = [list(map(plain, rows)) for rows in asked(statement, engines, spark, duck)]
        assert all(rows == found[0] for rows in found), block
        answers += found[:1]
    throttled, top, cost, seen, of_report = [rows for rows in answers if rows and len(rows[0]) > 1]
    assert throttled == [("alice", "app", "user=alice", 1e6, 10, 2.0)]
    assert [(user, requests) for user, _, _, requests in top] == [("alice", 180), ("bob", 0)]
    assert [(user, round(gib_in), round(gib_out), round(total, 6)) for _, user, gib_in, gib_out, total in cost] == [
        ("bob", 0, 60, 1.8),
        ("alice", 60, 0, 1.2),
    ]
    assert [(began.second, last.second, ms) for *_, began, last, ms in seen] == [(5, 17, 1200), (40, 41, 800)]
    assert of_report == [("alice", "app", len(seen), 2.0)]


def asked(
    statement: str, engines: tuple[str, ...], spark: SparkSession, duck: duckdb.DuckDBPyConnection
) -> list[list[tuple[Any, ...]]]:
    found = []
    if "duckdb" in engines:
        found.append(duck.execute(statement).fetchall())
    if "spark" in engines:
        found.append([tuple(each) for each in spark.sql(statement).collect()])
    return found


def plain(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Times without their zone, which engines give differently; all are UTC."""
    return tuple(value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value for value in values)


def test_the_notebook(spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cells run one after the other, as a kernel does it; the session is the one that is there."""
    monkeypatch.setenv("SLUICE_WAREHOUSE", str(place))
    cells = json.loads((DOCS / "notebooks" / "usage.ipynb").read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            exec(compile("".join(cell["source"]), cell["id"], "exec"), names)  # noqa: S102  it is ours
    assert names["date"] == "2026-03-01"
    assert list(names["top"].index) == ["alice / app", "bob / b"]
    assert names["per_minute"]["alice / app"].tolist() == [2**30]
    assert names["muted"]["muted_ms"].to_dict() == {"alice / app": 2000}
    assert [each.user for each in names["by_day"].collect()] == ["alice", "bob"]
