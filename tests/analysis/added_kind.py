"""What the analysis has of a quota kind by its row alone; run by tests/quotas/test_added_kind.py, in a copy with it."""

import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from analysis.cli import analyze
from analysis.warehouse import Period, opened
from analysis.whatif import comparison
from analysis.whatif import page as comparison_page
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from quotas.stores.file import load
from tests.analysis.golden import answered, sums_of, warehouse_of
from tests.analysis.records import Document, document, row

KIND = QuotaKind(os.environ["ADDED_KIND"])
WORD, PER_USED, LIMIT = {
    "transaction_rate": ("commit", 0.5, "20 /s"),
    "request_percentage": ("request", 1e-4, "20 %"),
}[KIND]
SECONDS = 60
RATE = 40
"""What alice uses each second, in the unit of the limit. Nobody else uses any."""
ALICE = Entity(user="alice")


def recorded() -> list[Document]:
    use: dict[str, Any] = {
        KIND.row.columns.used: round(RATE / PER_USED),
        f"{WORD}_requests": 4,
        f"{WORD}_limit": 20.0,
        f"{WORD}_rule": "user=alice",
        f"{WORD}_counter_user": "alice",
        f"{WORD}_throttled": 1,
        f"{WORD}_throttle_ms": 300,
        f"{WORD}_muted_ms": 250,
    }
    bob = row("bob", produce_bytes=5000, produce_requests=1)
    return [document(second, [row("alice", **use), bob], mode="shadow") for second in range(SECONDS)]


def without_the_kind() -> list[Document]:
    """From a proxy that does not have it, or did not need it."""
    made = [document(second, [row("zoe", produce_bytes=7000)], instance="edge-2") for second in range(SECONDS)]
    of_kind = set(KIND.row.columns)
    return [{**each, "rows": {name: each["rows"][name] for name in each["rows"].keys() - of_kind}} for each in made]


@pytest.fixture(scope="module")
def warehouse(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    return warehouse_of(spark, [*recorded(), *without_the_kind()], tmp_path_factory.mktemp("warehouse"))


def test_proposed_quotas_are_replayed(warehouse: str) -> None:
    sums = sums_of(warehouse)
    used = sums.used[KIND]
    [alice] = used.used.nonzero()[0].tolist()
    assert sums.clients[alice].user == "alice"
    assert used.used[alice] == pytest.approx(RATE * SECONDS)
    assert used.most_limit[alice] == 20
    found = answered(warehouse, *(Policy({ALICE: {KIND: limit}}) for limit in (20, 50)))
    tight, wide = (each for each in found.units.to_pylist() if each["kind"] == KIND)
    assert (tight["verdict"], wide["verdict"]) == ("yes", "no")
    assert tight["sent_bytes"] == pytest.approx(20 * SECONDS, rel=0.2)
    text, page = comparison.text(found, 5), comparison_page.render(found)
    for said in (text, page):
        assert KIND.row.doing in said
        assert LIMIT in said
    totals = comparison.totals(found, "quotas-0")
    assert totals.recorded_bytes == SECONDS * (5000 + 7000), "of bytes alone"


def test_added_kind_gets_recommended_quotas(warehouse: str, tmp_path: Path) -> None:
    path = tmp_path / "quotas.yaml"
    arguments = ("--target", "p99 throttle < 100 ms", "--accept-low-confidence", "--out", str(path))
    ran = CliRunner().invoke(analyze, ["recommend", "--warehouse", warehouse, *arguments])
    assert ran.exit_code == 0, ran.output
    loaded = load(path)
    assert RATE <= loaded.policy.limits[ALICE][KIND] <= 1.5 * RATE
    assert loaded.warnings == ()
    assert f"~ user=alice {KIND} unlimited → " in ran.stderr


def test_gold_charges_and_reads_the_added_kind(warehouse: str) -> None:
    gold = opened(warehouse, Period(), ("charged", "readings", "counters"))
    charged = gold.sql("SELECT used * per_used, muted_ms, most_limit FROM charged WHERE kind = ?", params=[WORD])
    assert charged.fetchall() == [(pytest.approx(RATE * SECONDS), 250 * SECONDS, 20.0)]
    window = gold.sql(
        "SELECT most_window, max FROM readings JOIN counters USING (counter) WHERE kind = ?", params=[WORD]
    )
    assert window.fetchall() == [(pytest.approx(11 * RATE), pytest.approx(RATE / 20))]
