"""What the analysis has of a quota kind by its row alone; run by tests/quotas/test_added_kind.py, in a copy with it."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from analysis.ingest import documents
from analysis.kernel.target import parse_target
from analysis.metrics import headroom
from analysis.metrics.clients import clients
from analysis.metrics.period import look
from analysis.metrics.rates import Rates
from analysis.recommend import quota_file
from analysis.recommend.choices import Choices
from analysis.recommend.job import recommend
from analysis.replay.recording import Recording, read
from analysis.report import job as report
from analysis.table.parquet import encode
from analysis.table.scan import FILES, UsageRows
from analysis.whatif import comparison
from analysis.whatif import page as comparison_page
from analysis.whatif.job import whatif
from analysis.whatif.scenarios import Scenario
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from quotas.stores.file import load
from tests.analysis.records import Document, document, headroom_of, muted_of, row

KIND = QuotaKind(os.environ["ADDED_KIND"])
WORD, PER_USED, LIMIT = {
    "transaction_rate": ("commit", 0.5, "20 commits/s"),
    "request_percentage": ("request", 1e-4, "20 percent"),
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
def usage(spark: SparkSession) -> UsageRows:
    """Two files: one of a warehouse that was written before there was the kind."""
    new, old = (
        documents.table([documents.read(json.dumps(each).encode()) for each in made])
        for made in (recorded(), without_the_kind())
    )
    files = [("new", encode(new)), ("old", encode(old.drop_columns(list(KIND.row.columns))))]
    return UsageRows(spark.createDataFrame(files, FILES))


@pytest.fixture(scope="module")
def recording(usage: UsageRows) -> Recording:
    return read(usage)


def test_proposed_quotas_are_replayed(recording: Recording) -> None:
    used = recording.used[KIND]
    [alice] = used.rows.nonzero()[0].tolist()
    assert recording.clients[alice].user == "alice"
    assert used.sent_bytes[alice] == pytest.approx(RATE * SECONDS)
    assert used.peak_bytes_per_s[alice] == pytest.approx(RATE)
    assert used.most_limit[alice] == 20
    scenarios = [Scenario(name, Policy({ALICE: {KIND: limit}})) for name, limit in (("tight", 20), ("wide", 50))]
    found = whatif(recording, scenarios)
    units = {each["scenario"]: each for each in found.units.to_pylist() if each["kind"] == KIND}
    assert (units["tight"]["verdict"], units["wide"]["verdict"]) == ("yes", "no")
    assert units["tight"]["sent_bytes"] == pytest.approx(20 * SECONDS, rel=0.2)
    text, page = comparison.text(found, 5), comparison_page.render(found)
    for said in (text, page):
        assert KIND.row.doing in said
        assert LIMIT in said
    totals = comparison.totals(found, "tight")
    assert totals.recorded_bytes == SECONDS * (5000 + 7000), "of bytes alone"


def test_quotas_are_recommended(recording: Recording, tmp_path: Path) -> None:
    choices = Choices(parse_target("p99 throttle < 100 ms"))
    found = recommend(recording, choices)
    [needed] = [need for each in found for need in each.needs if need.kind is KIND]
    assert RATE <= needed.quota <= 1.5 * RATE
    assert needed.now == f"{LIMIT} by user=alice"
    path = tmp_path / "quotas.yaml"
    path.write_text(quota_file.write(found, choices, "p99 throttle < 100 ms", recording.circumstances))
    loaded = load(path)
    assert loaded.policy.limits[ALICE] == {KIND: needed.quota}
    assert loaded.warnings == ()
    assert f"# {KIND.row.doing}: needs " in path.read_text()


def test_the_tables_of_a_report_have_it(usage: UsageRows) -> None:
    period = look(usage)
    assert period is not None

    def of_kind(table: pa.Table) -> list[dict[str, Any]]:
        return [each for each in table.to_pylist() if each["kind"] == WORD]

    mutes = of_kind(muted_of(usage).whole())
    assert len(mutes) == SECONDS
    assert {(each["user"], each["muted_ms"], each["limit"], each["bytes"]) for each in mutes} == {
        ("alice", 250, 20.0, None)
    }
    sums = clients(usage, period.rows)
    [alice] = [each for each in sums.whole().to_pylist() if each["user"] == "alice"]
    assert alice[KIND.row.columns.used] == SECONDS * round(RATE / PER_USED)
    [counter] = of_kind(headroom.counters(sums))
    assert counter["unit_user"] == "alice"
    [use] = [each for each in of_kind(headroom_of(usage, period).whole()) if each["date"] is None]
    assert (use["p99"], use["limit"]) == (pytest.approx(RATE / 20), pytest.approx(20.0))


def test_the_page_of_a_report_has_it(usage: UsageRows, tmp_path: Path) -> None:
    made = report.run(usage, report.ReportRequest(None, None, str(tmp_path), Rates(), None))
    page = Path(made.html).read_text(encoding="utf-8")
    assert KIND.row.doing in page
    assert f">{LIMIT}<" in page
    assert f"{WORD} on broker 1" in page
