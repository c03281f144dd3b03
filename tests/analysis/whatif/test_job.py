"""The Spark job against the kernel, and what recordings are like: proxies, beats, gaps, modes, time zones."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from analysis.cli import analyze
from analysis.errors import AnalysisError
from analysis.kernel.fluid import replay
from analysis.kernel.histogram import Floats
from analysis.replay import gathering, recording
from analysis.table import exchange
from analysis.table.scan import UsageRows
from analysis.whatif import comparison
from analysis.whatif.job import WhatIf, whatif
from analysis.whatif.page import render
from analysis.whatif.scenarios import Scenario
from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from quotas.rate import Window
from tests.analysis.loads import MB, Load, documents
from tests.analysis.records import document, row, usage, usage_frame
from tests.analysis.table.test_warehouse import store
from tests.analysis.workloads import recordings
from tests.reference.request_level import Shape, run

pytestmark = pytest.mark.spark

SECONDS = 300
PRODUCE = QuotaKind.PRODUCER_BYTE_RATE
FETCH = QuotaKind.CONSUMER_BYTE_RATE
EACH_CLIENT_ID = Entity(client_id=Default.DEFAULT)
EACH_USER = Entity(user=Default.DEFAULT)


def uneven(mean: float, seed: int, seconds: int = SECONDS) -> Floats:
    return mean * np.random.default_rng(seed).gamma(4, 1 / 4, seconds)


def now_and_then(size: float) -> Floats:
    return np.where(np.arange(SECONDS) % 60 == 7, size, 0.0)


LOADS = (
    Load("alice", "over", uneven(1.4 * MB, 1)),
    Load("alice", "over", uneven(1.2 * MB, 2), broker=2),
    Load("alice", "over", uneven(1.1 * MB, 3), instance="edge-2"),
    Load("bob", "near", uneven(0.95 * MB, 4)),
    Load("bob", "under", uneven(0.2 * MB, 5), instance="edge-2"),
    Load("carol", "bursts", now_and_then(30 * MB)),
    Load("carol", "reads", uneven(1.3 * MB, 6), word="fetch"),
    Load("dave", "idles", now_and_then(1000.0), instance="edge-2", broker=2),
)
CLOCK = Load("zoe", "clock", np.ones(SECONDS))
"""Somebody who is there in every second: a recording ends with its last row."""
TIGHT = Policy({EACH_CLIENT_ID: {PRODUCE: MB, FETCH: 1.2 * MB}})


def rows_of(spark: SparkSession, loads: Sequence[Load] = LOADS, **fields: Any) -> UsageRows:
    return usage(spark, documents(loads, **fields))


def answer(rows: UsageRows, *policies: Policy) -> WhatIf:
    return whatif(recording.read(rows), [Scenario(f"quotas-{n}", policy) for n, policy in enumerate(policies)])


def by_unit(found: WhatIf, scenario: str = "quotas-0") -> dict[tuple[Any, ...], dict[str, Any]]:
    return {
        (row["instance"], row["broker"], row["kind"], row["user"], row["client_id"]): row
        for row in found.units.to_pylist()
        if row["scenario"] == scenario
    }


def kind_of(load: Load) -> QuotaKind:
    return PRODUCE if load.word == "produce" else FETCH


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> UsageRows:
    return rows_of(spark)


@pytest.fixture(scope="module")
def found(rows: UsageRows) -> WhatIf:
    return answer(rows, TIGHT)


def test_the_job_says_what_the_kernel_says(found: WhatIf) -> None:
    """Each counter by itself: of its proxy, broker, kind and client-id."""
    units = by_unit(found)
    assert len(units) == len(LOADS)
    verdicts = set()
    for load in LOADS:
        row = units[load.instance, load.broker, kind_of(load).value, "", load.client_id]
        limit = TIGHT.limits[EACH_CLIENT_ID][kind_of(load)]
        outcome = replay(load.demand, [limit])
        assert row["limit"] == limit
        assert row["rule"] == "client-id=<default>"
        assert row["recorded_bytes"] == np.floor(load.sent_bytes).sum()
        assert row["sent_bytes"] == pytest.approx(outcome.sent_bytes[0, 0])
        assert row["throttled_s"] == row["throttled_least_s"] == row["throttled_most_s"] == outcome.throttled_s[0, 0]
        assert row["episodes"] == outcome.episodes[0, 0]
        assert row["active_s"] == np.count_nonzero(np.floor(load.sent_bytes))
        assert row["waiting_bytes"] == pytest.approx(outcome.waiting_bytes[0, 0])
        for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
            assert row[f"delay_{name}_s"] == pytest.approx(outcome.delay_s(share)[0, 0])
            assert row[f"throttle_{name}_s"] == pytest.approx(outcome.throttle_s(share)[0, 0])
        assert row["answer"] == "exact"
        assert row["verdict"] == ("yes" if outcome.ever_throttled[0, 0] else "no")
        assert row["before_throttled_s"] == row["before_episodes"] == row["before_throttle_p99_s"] == 0
        verdicts.add(row["verdict"])
    assert verdicts == {"yes", "no"}


def test_clients_that_share_a_counter_are_one(rows: UsageRows) -> None:
    """Per user: of alice's client-ids, but still of each broker and proxy by itself."""
    units = by_unit(answer(rows, Policy({EACH_USER: {PRODUCE: 1.3 * MB}})))
    assert ("edge-1", 1, PRODUCE.value, "alice", "") in units
    row = units["edge-1", 1, PRODUCE.value, "bob", ""]
    assert row["recorded_bytes"] == np.floor(LOADS[3].sent_bytes).sum()


def test_how_the_rows_lie_changes_nothing(found: WhatIf, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_LEAST_TASK_ROWS", 1)  # as many tasks as may be at once
    monkeypatch.setattr(gathering, "TASK_ROWS", 700)  # and rows are added up before all are there
    all_of_them = list(documents(LOADS))
    again = by_unit(answer(usage(spark, *(all_of_them[first::5] for first in range(5))), TIGHT))
    for unit, figures in by_unit(found).items():
        for name, value in figures.items():
            assert again[unit][name] == (pytest.approx(value) if isinstance(value, float) else value), (unit, name)


def test_time_zones_change_nothing(spark: SparkSession, found: WhatIf, rows: UsageRows) -> None:
    spark.conf.set("spark.sql.session.timeZone", "America/St_Johns")
    try:
        assert by_unit(answer(rows, TIGHT)) == by_unit(found)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_proxies_beat_each_at_its_own_time(spark: SparkSession, found: WhatIf) -> None:
    off = rows_of(spark, phases_ms={"edge-1": 137, "edge-2": 904})
    shifted = by_unit(answer(off, TIGHT))
    for unit, figures in by_unit(found).items():
        # The period of two that do not begin together is longer, by less than a second, in which a backlog goes on.
        assert shifted[unit]["throttled_s"] == pytest.approx(figures["throttled_s"], abs=1)
        assert shifted[unit]["sent_bytes"] == pytest.approx(figures["sent_bytes"], abs=3 * MB)


def test_scenarios_do_not_disturb_each_other(rows: UsageRows, found: WhatIf) -> None:
    """Two that share counters in the same way go together; one that does not goes by itself."""
    half = Policy({EACH_CLIENT_ID: {PRODUCE: MB / 2, FETCH: MB / 2}})
    per_user = Policy({EACH_USER: {PRODUCE: MB}})
    several = answer(rows, TIGHT, per_user, half)
    assert by_unit(several) == {unit: {**row} for unit, row in by_unit(found).items()}
    alone = by_unit(answer(rows, per_user))
    assert by_unit(several, "quotas-1") == {unit: {**row, "scenario": "quotas-1"} for unit, row in alone.items()}
    over = ("edge-1", 1, PRODUCE.value, "", "over")
    assert by_unit(several, "quotas-2")[over]["sent_bytes"] < by_unit(several)[over]["sent_bytes"]


def held_up(limit: float, **fields: Any) -> tuple[Load, Floats, Shape]:
    """What a client recorded that wanted 0.8 MB/s in the mean, and had ``limit``: under 0.9 MB/s it gets all of it."""
    shape = Shape(request_bytes=10_000, peak_bytes_per_s=50e6)
    due_bytes = np.where(np.arange(SECONDS) % 100 < 50, 1.6 * MB, 0.0)
    real = run(due_bytes, shape, limit)
    load = Load(
        "eve",
        "held",
        np.array(real.served_bytes),
        limit=limit,
        rule="client-id=<default>",
        muted_s=np.array(real.muted_s),
        **fields,
    )
    return load, due_bytes, shape


@pytest.mark.parametrize("proposed", [0.6 * MB, 0.9 * MB, 1.2 * MB])
def test_the_truth_is_within_what_is_shown(spark: SparkSession, proposed: float) -> None:
    """Recorded under 900 kB/s, asked of less, of the same, and of more."""
    load, due_bytes, shape = held_up(0.9 * MB)
    units = by_unit(answer(rows_of(spark, [load, CLOCK]), Policy({EACH_CLIENT_ID: {PRODUCE: proposed}})))
    row = units["edge-1", 1, PRODUCE.value, "", "held"]
    truth_s = sum(run(due_bytes, shape, proposed).muted_s)
    assert row["answer"] in {"interval", "unknown"}
    assert row["throttled_least_s"] - 1 <= truth_s <= row["throttled_most_s"] + 1
    assert row["before_throttled_s"] == pytest.approx(load.muted_s.sum(), abs=1)
    assert row["before_episodes"] >= 1
    assert row["before_throttled_requests"] == np.count_nonzero(load.muted_s >= 0.001)
    assert row["before_throttle_p50_s"] == 0


@pytest.mark.parametrize(("proposed", "mode"), [(0.6 * MB, None), (0.95 * MB, None), (0.95 * MB, "shadow")])
def test_a_limit_that_changed_bounds_what_is_beyond_it(spark: SparkSession, proposed: float, mode: str | None) -> None:
    """Under more than it ever had nobody is held longer than was recorded; where all was held, and in no shadow."""
    load, _, _ = held_up(0.9 * MB)
    made = list(documents([load, CLOCK]))
    for document_ in made[: SECONDS // 2]:
        limits = document_["rows"]["produce_limit"]
        document_["rows"]["produce_limit"] = [limit and 0.7 * MB for limit in limits]
    if mode is not None:
        made[0] |= {"mode": mode}
    units = by_unit(answer(usage(spark, made), Policy({EACH_CLIENT_ID: {PRODUCE: proposed}})))
    row = units["edge-1", 1, PRODUCE.value, "", "held"]
    recorded_s = row["before_throttled_s"]
    if proposed < 0.7 * MB:
        assert row["throttled_least_s"] >= recorded_s
    else:
        assert (row["throttled_most_s"] <= recorded_s) is (mode is None)


def test_a_raised_quota_is_not_called_harmless(spark: SparkSession) -> None:
    load, _, _ = held_up(0.5 * MB)
    (row,) = by_unit(answer(rows_of(spark, [load]), Policy({EACH_CLIENT_ID: {PRODUCE: 0.8 * MB}}))).values()
    assert row["verdict"] != "no"
    assert row["throttled_most_s"] > 0


@pytest.mark.parametrize("mode", ["shadow", "off"])
def test_what_was_not_held_up_is_known_exactly(spark: SparkSession, mode: str) -> None:
    """In shadow the records say what would have been: nobody was throttled, and the demand is all there."""
    load = Load("eve", "free", uneven(1.4 * MB, 9), limit=MB, rule="client-id=<default>", muted_s=np.full(SECONDS, 0.5))
    answered = answer(rows_of(spark, [load], mode=mode), TIGHT)
    (row,) = by_unit(answered).values()
    assert row["answer"] == "exact"
    assert row["before_throttled_s"] == row["before_throttled_requests"] == 0
    assert row["throttled_s"] == replay(load.demand, [MB]).throttled_s[0, 0] > 0
    assert f"recorded in mode {mode}" in comparison.text(answered, 5)


def test_intervals_of_ten_seconds(spark: SparkSession) -> None:
    """Steady overload is seen; a burst within an interval is not, and that is said."""
    steady = Load("alice", "steady", np.full(30, 13 * MB))
    burst = Load("alice", "burst", np.where(np.arange(30) == 5, 9.5 * MB, 0.0))
    ten = [{**each, "time_ms": each["time_ms"] + 9000 * each["seq"]} for each in documents([steady, burst])]
    answered = answer(usage(spark, [{**each, "interval_ms": 10_000} for each in ten]), TIGHT)
    units = {row["client_id"]: row for row in answered.units.to_pylist()}
    by_second = replay(Load("alice", "steady", np.full(300, 1.3 * MB)).demand, [MB])
    assert units["steady"]["throttled_s"] == pytest.approx(by_second.throttled_s[0, 0], abs=2)
    assert units["steady"]["recorded_bytes"] == 30 * 13 * MB
    assert units["burst"]["verdict"] == "no"
    assert "intervals are 10 s long" in comparison.text(answered, 5)


def test_gaps_are_counted_and_said(spark: SparkSession) -> None:
    answered = answer(rows_of(spark, lost=[50, 51, 52, 200]), TIGHT)
    assert answered.recording.circumstances.missing_documents == 8
    text = comparison.text(answered, 5)
    assert f"8 of {2 * SECONDS} documents are missing" in text
    assert "at least" in text


def test_a_proxy_that_idles_has_no_gap(found: WhatIf) -> None:
    assert found.recording.circumstances.missing_documents == 0
    assert found.recording.circumstances.notes() == []


def test_the_window_that_was_recorded(spark: SparkSession) -> None:
    load = Load("alice", "bursts", now_and_then(12 * MB))
    for samples, throttled in ((11, True), (21, False)):
        answered = answer(rows_of(spark, [load], samples=samples), TIGHT)
        assert answered.recording.circumstances.window == Window(samples, 1000)
        assert next(iter(by_unit(answered).values()))["verdict"] == ("yes" if throttled else "no")


def test_refused_connections_are_nobody(spark: SparkSession) -> None:
    refused = [document(seq, [row(None, None, connections_refused=3)], boot="of them") for seq in range(3)]
    (found,) = by_unit(answer(usage(spark, documents(LOADS[:1]), refused, []), TIGHT)).values()
    assert found["client_id"] == "over"


def test_a_period_without_rows(spark: SparkSession) -> None:
    with pytest.raises(AnalysisError, match="there are no usage records in the period"):
        recording.read(usage(spark, [], []))


def test_a_period_without_use(spark: SparkSession) -> None:
    idle = Load("alice", "idle", np.ones(3), word="fetch")
    with pytest.raises(AnalysisError, match="nobody produced or fetched anything from 2026-03-01 12:00"):
        recording.read(rows_of(spark, [idle]), [PRODUCE])


def test_what_is_printed(found: WhatIf) -> None:
    text = comparison.text(found, 3)
    assert "quotas-0: 6 of 8 counters would be throttled; 0 were" in text
    assert "over producing" in text
    assert "edge-1, broker 1" in text
    assert "and 3 more that would be throttled (--top)" in text
    assert max(map(len, text.splitlines())) < 180


def test_the_page(found: WhatIf, spark: SparkSession) -> None:
    html = render(found)
    assert "<em>6 of 8 counters</em> would be throttled" in html
    assert html.count("<tr>") == 1 + 6
    assert "http" not in html.replace("http-equiv", "")
    wicked = Load("<script>alert(1)</script>", "a\n\u202e&", uneven(2 * MB, 1))
    page = render(answer(rows_of(spark, [wicked]), Policy({EACH_USER: {PRODUCE: MB}})))
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


@pytest.fixture(scope="module")
def stored(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    warehouse = str(tmp_path_factory.mktemp("warehouse"))
    store(usage_frame(spark, documents(LOADS)), warehouse)
    return warehouse


def quota_file(folder: Path, text: str) -> str:
    path = folder / "proposed.yaml"
    path.write_text(f"quotas:\n{text}", encoding="utf-8")
    return str(path)


def test_the_command(spark: SparkSession, stored: str, tmp_path: Path) -> None:
    path = quota_file(
        tmp_path, "  - {entity: {client-id: {default: true}}, producer_byte_rate: 1MB, consumer_byte_rate: 1200kB}\n"
    )
    arguments = ["whatif", "--warehouse", stored, "--quotas", path, "--out", str(tmp_path / "out"), "--json"]
    ran = CliRunner().invoke(analyze, [*arguments, "--fail-if-throttled"])
    assert ran.exit_code == 1, ran.output
    (scenario,) = json.loads(ran.stdout)["scenarios"]
    assert scenario["quotas"] == path
    assert scenario["totals"]["throttled"] == len(scenario["units"]) == 6
    assert "whatif: 2 of 2, replay" in ran.stderr
    assert (tmp_path / "out" / "whatif.html").exists()
    assert spark.read.parquet(str(tmp_path / "out" / "whatif")).count() == len(LOADS)


def test_the_command_finds_nothing_wrong(spark: SparkSession, stored: str, tmp_path: Path) -> None:
    path = quota_file(tmp_path, "  - {entity: {client-id: {default: true}}, producer_byte_rate: 1GB}\n")
    ran = CliRunner().invoke(analyze, ["whatif", "--warehouse", stored, "--quotas", path, "--fail-if-throttled"])
    assert ran.exit_code == 0, ran.output
    assert "0 of 8 counters would be throttled; 0 were" in ran.stdout


def test_a_bad_quota_file(tmp_path: Path) -> None:
    path = quota_file(tmp_path, "  - {entity: {user: alice}, producer_byte_rate: fast}\n  - {entity: {}}\n")
    ran = CliRunner().invoke(analyze, ["whatif", "--warehouse", "nowhere", "--quotas", path])
    assert ran.exit_code == 2
    assert f"{path}:2:49: quotas[0].producer_byte_rate" in ran.stderr
    assert f"{path}:3" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_an_empty_period(spark: SparkSession, stored: str, tmp_path: Path) -> None:
    path = quota_file(tmp_path, "  - {entity: {user: alice}, producer_byte_rate: 1MB}\n")
    ran = CliRunner().invoke(analyze, ["whatif", "--warehouse", stored, "--quotas", path, "--from", "2031-01-01"])
    assert ran.exit_code == 2
    assert "no usage records" in ran.stderr


def test_the_kernels_own_workloads_through_the_job(spark: SparkSession) -> None:
    """Each workload in one shape of requests; its connections and sizes are what rows say of them."""
    found = [each for number, each in enumerate(recordings(SECONDS)) if number % 4 == 1]
    loads = [Load("w", each.name, np.array(each.run.served_bytes)) for each in found]
    units = by_unit(answer(rows_of(spark, loads), TIGHT))
    for load in loads:
        outcome = replay(load.demand, [MB])
        row = units["edge-1", 1, PRODUCE.value, "", load.client_id]
        assert row["throttled_s"] == outcome.throttled_s[0, 0]
        assert row["sent_bytes"] == pytest.approx(outcome.sent_bytes[0, 0])
