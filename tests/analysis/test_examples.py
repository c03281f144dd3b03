"""The SQL and the programs that the documentation shows run on a warehouse, and say what a report says."""

import re
from pathlib import Path
from typing import Any, Final

import duckdb
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from analysis.cli import analyze
from tests.analysis.golden import warehouse_of
from tests.analysis.records import document, row

pytestmark = pytest.mark.spark

DOCS: Final = Path(__file__).parents[2] / "docs"
MUTED_S: Final = {5, 6, 17, 40, 41}
"""Two episodes: the gap between 6 and 17 is ten seconds, that between 17 and 40 is 22."""


def in_second(second: int) -> dict[str, Any]:
    """A second of alice, who is held now and then, and of bob, who is not."""
    held: dict[str, Any] = {"produce_limit": 1e6, "produce_rule": "user=alice", "produce_bytes": 2_000_000}
    if second in MUTED_S:
        held |= {"produce_muted_ms": 400, "produce_throttled": 2}
    alice = row("alice", bytes_in=2**30, bytes_out=1, requests=3, **held)
    return document(second, [alice, row("bob", "b", bytes_in=1, bytes_out=2**30)])


@pytest.fixture(scope="module")
def place(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse of a minute, with its report beside it."""
    place = Path(warehouse_of(spark, [in_second(second) for second in range(60)], tmp_path_factory.mktemp("examples")))
    made = CliRunner().invoke(analyze, ["report", "--warehouse", str(place)])
    assert made.exit_code == 0, made.output
    return place


def test_documented_sql_matches_the_report(place: Path) -> None:
    text = (DOCS / "analysis-tables.md").read_text(encoding="utf-8").replace("'usage", f"'{place}")
    duck = duckdb.connect()
    duck.execute("SET TimeZone = 'UTC'")
    _, by_minute, _, throttled, by_day, headroom, episodes = (
        duck.execute(block).fetchall() for block in re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    )
    assert [each[1:] for each in by_minute] == [("alice", 60 * (2**30 + 1), 180), ("bob", 60 * (2**30 + 1), 0)]
    assert throttled == [("alice", "app", "produce", "user=alice", 10, 2.0)]
    assert [(f"{day}", user, round(gb)) for day, user, gb in by_day] == [
        ("2026-03-01", "alice", 64),
        ("2026-03-01", "bob", 64),
    ]
    [(kind, rule, user, p99)] = headroom
    assert (kind, rule, user, p99) == ("produce", "user=alice", "alice", 2.0)
    assert episodes == [("alice", "app", 2, 2.0)]


def test_documented_pyspark_and_notebook_read_gold(place: Path, spark: SparkSession) -> None:
    text = (DOCS / "analysis.md").read_text(encoding="utf-8").replace("usage/gold", f"{place}/gold")
    pyspark, notebook = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert sum(bool(line) for line in pyspark.splitlines()) <= 8
    found: dict[str, Any] = {}
    exec(pyspark, found)  # noqa: S102  our own page
    [longest] = found["longest"].collect()
    assert (longest["user"], longest["kind"], longest["muted_ms"]) == ("alice", "produce", 2000)
    assert found["spark"] is spark
    exec(notebook, found)  # noqa: S102  as above
    assert found["hours"]["muted_s"].tolist() == [2.0]
