"""The Spark job against the kernel, and what recordings are like: proxies, beats, gaps, modes, time zones."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from analysis.cli import analyze
from analysis.demand.rows import Rows
from analysis.errors import AnalysisError
from analysis.whatif import comparison
from analysis.whatif.job import WhatIf, whatif
from analysis.whatif.page import render
from analysis.whatif.scenarios import Scenario, rules_not_replayed
from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy, Terms
from quotas.rate import Window
from tests.analysis.demands import replayed
from tests.analysis.golden import answered, hours_of, rows_of, sums_of, warehouse_of
from tests.analysis.loads import MB, Load, documents
from tests.analysis.whatif.recorded import (
    FREE,
    LOADS,
    MODES,
    SECONDS,
    USE,
    drained,
    held_up,
    recordings,
    workloads,
)
from tests.reference.request_level import run

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PRODUCE = QuotaKind.PRODUCER_BYTE_RATE
FETCH = QuotaKind.CONSUMER_BYTE_RATE
EACH_CLIENT_ID = Entity(client_id=Default.DEFAULT)
EACH_USER = Entity(user=Default.DEFAULT)


Asked = Callable[..., WhatIf]
TIGHT = Policy({EACH_CLIENT_ID: {PRODUCE: MB, FETCH: 1.2 * MB}})


@pytest.fixture(scope="module")
def asked(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Asked:
    """What-if of a recording, by its name, and of quotas."""
    warehouse, hours = hours_of(spark, recordings(), tmp_path_factory.mktemp("hours"))

    def ask(name: str, *policies: Policy) -> WhatIf:
        return answered(warehouse, *policies, period=hours[name])

    return ask


def by_unit(found: WhatIf, scenario: str = "quotas-0") -> dict[tuple[Any, ...], dict[str, Any]]:
    return {
        (row["instance"], row["broker"], row["kind"], row["user"], row["client_id"]): row
        for row in found.units.to_pylist()
        if row["scenario"] == scenario
    }


def kind_of(load: Load) -> QuotaKind:
    return PRODUCE if load.word == "produce" else FETCH


@pytest.fixture(scope="module")
def recorded(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    return warehouse_of(spark, documents(LOADS), tmp_path_factory.mktemp("recorded"))


@pytest.fixture(scope="module")
def found(recorded: str) -> WhatIf:
    return answered(recorded, TIGHT)


def test_the_job_says_what_the_kernel_says(found: WhatIf) -> None:
    """Each counter by itself: of its proxy, broker, kind and client-id."""
    units = by_unit(found)
    assert len(units) == len(LOADS)
    verdicts = set()
    for load in LOADS:
        row = units[load.instance, load.broker, kind_of(load).value, "", load.client_id]
        limit = TIGHT.limits[EACH_CLIENT_ID][kind_of(load)]
        outcome = replayed(load.demand, [limit])
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
        assert row["before_throttled_s"] == row["before_episodes"] == 0
        verdicts.add(row["verdict"])
    assert verdicts == {"yes", "no"}


def test_clients_that_share_a_counter_are_one(recorded: str) -> None:
    """Per user: of alice's client-ids, but still of each broker, and here of each proxy by itself."""
    units = by_unit(answered(recorded, Policy({EACH_USER: {PRODUCE: 1.3 * MB}})))
    assert ("edge-1", 1, PRODUCE.value, "alice", "") in units
    row = units["edge-1", 1, PRODUCE.value, "bob", ""]
    assert row["recorded_bytes"] == np.floor(LOADS[3].sent_bytes).sum()


def test_proxies_beat_each_at_its_own_time(asked: Asked, found: WhatIf) -> None:
    shifted = by_unit(asked("shifted", TIGHT))
    for unit, figures in by_unit(found).items():
        # The period of two that do not begin together is longer, by less than a second, in which a backlog goes on.
        assert shifted[unit]["throttled_s"] == pytest.approx(figures["throttled_s"], abs=1)
        assert shifted[unit]["sent_bytes"] == pytest.approx(figures["sent_bytes"], abs=3 * MB)


def test_scenarios_do_not_disturb_each_other(recorded: str, found: WhatIf) -> None:
    per_user = Policy({EACH_USER: {PRODUCE: MB}})
    several = answered(recorded, TIGHT, per_user)
    assert by_unit(several) == by_unit(found)
    alone = by_unit(answered(recorded, per_user))
    assert by_unit(several, "quotas-1") == {unit: {**row, "scenario": "quotas-1"} for unit, row in alone.items()}


def test_whatif_answered_by_sums_reads_no_rows(recorded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> NoReturn:
        raise AssertionError("rows were asked for")

    monkeypatch.setattr(Rows, "replayed", never)
    policy = Policy({EACH_CLIENT_ID: {PRODUCE: 40 * MB}})
    wide = whatif(sums_of(recorded), [Scenario("wide", policy)], rows_of(recorded))
    assert wide.replayed == 0
    rows = by_unit(wide, "wide").values()
    assert {(row["verdict"], row["throttled_s"]) for row in rows} == {("no", 0.0)}
    assert sum(row["sent_bytes"] for row in rows) == sum(np.floor(load.sent_bytes).sum() for load in LOADS)


def test_client_is_throttled_exactly_when_a_window_exceeds_limit(recorded: str) -> None:
    """Its largest sum of eleven seconds, over eleven, is the least limit that throttles nobody."""
    cases = []
    for load in LOADS:
        most = np.convolve(np.floor(load.sent_bytes), np.ones(11)).max() / 11
        cases += [(load, most * 1.001, False), (load, most * 0.98, True)]
    policies = [Policy({Entity(client_id=load.client_id): {kind_of(load): limit}}) for load, limit, _ in cases]
    found = answered(recorded, *policies)
    for number, (load, _, is_throttled) in enumerate(cases):
        units = by_unit(found, f"quotas-{number}")
        unit = units[load.instance, load.broker, kind_of(load).value, "", load.client_id]
        assert (unit["verdict"] == "yes") is is_throttled, load


def test_broker_taken_over_by_another_proxy_keeps_one_counter(asked: Asked) -> None:
    """Another one took the broker over: who shares a counter there is held by its limit all the time."""
    ((unit, row),) = by_unit(asked("moved", TIGHT)).items()
    assert unit == ("", 1, PRODUCE.value, "", "over")
    whole = replayed(Load("alice", "over", USE).demand, [MB])
    assert row["throttled_s"] == pytest.approx(whole.throttled_s[0, 0], abs=1)
    assert row["recorded_bytes"] == np.floor(USE).sum()


def test_proxies_with_owners_share_a_counter_and_others_do_not(asked: Asked) -> None:
    """A document says whether brokers have owners: the same rows are of one counter, or each proxy has its own."""
    per_user = Policy({EACH_USER: {PRODUCE: MB}})
    ((unit, row),) = by_unit(asked("drained by owners", per_user)).items()
    assert unit == ("", 1, PRODUCE.value, "alice", "")
    loads = drained()
    sent = np.floor(loads[0].sent_bytes) + np.floor(loads[1].sent_bytes) + np.floor(loads[2].sent_bytes)
    whole = replayed(Load("alice", "all", sent).demand, [MB])
    assert row["recorded_bytes"] == sent.sum()
    assert row["throttled_s"] == pytest.approx(whole.throttled_s[0, 0], abs=1)
    assert by_unit(asked("drained", per_user)).keys() == {
        (instance, 1, PRODUCE.value, "alice", "") for instance in ("edge-1", "edge-2")
    }


def test_rules_that_are_not_replayed_are_left_out_and_listed(recorded: str) -> None:
    policy = Policy(
        {Entity("alice"): {PRODUCE: MB}, Entity("bob", cap=True): {PRODUCE: MB}, EACH_USER: {PRODUCE: MB}},
        {Entity("alice"): Terms(burst_ms=2000)},
    )
    found = answered(recorded, policy)
    assert {row["user"] for row in found.units.to_pylist() if row["kind"] == PRODUCE} == {"carol", "dave"}
    said = "\n".join(comparison.left_out(found, "quotas-0"))
    assert "left out: produce of alice / over: burst of user=alice is not replayed" in said
    assert "left out: produce of bob / near, bob / under: cap user=bob holds besides, and caps are not replayed" in said
    assert rules_not_replayed(Policy({Entity(ip="10.0.0.1"): {QuotaKind.CONNECTION_CREATION_RATE: 5}})) == {
        Entity(ip="10.0.0.1"): ["connection_creation_rate"]
    }


@pytest.mark.parametrize("proposed", [0.6 * MB, 0.9 * MB, 1.2 * MB])
def test_true_throttle_time_lies_within_whatif_bounds(asked: Asked, proposed: float) -> None:
    """Recorded under 900 kB/s, asked of less, of the same, and of more."""
    load, due_bytes, shape = held_up(0.9 * MB)
    units = by_unit(asked("held", Policy({EACH_CLIENT_ID: {PRODUCE: proposed}})))
    row = units["", 1, PRODUCE.value, "", "held"]
    truth_s = sum(run(due_bytes, shape, proposed).muted_s)
    assert row["answer"] in {"interval", "unknown"}
    assert row["throttled_least_s"] - 1 <= truth_s <= row["throttled_most_s"] + 1
    assert row["before_throttled_s"] == pytest.approx(load.muted_s.sum(), abs=1)
    assert row["before_episodes"] >= 1
    assert row["before_throttled_requests"] == np.count_nonzero(load.muted_s >= 0.001)
    assert row["before_throttled_requests"] > 0


@pytest.mark.parametrize(("proposed", "mode"), [(0.6 * MB, None), (0.95 * MB, None), (0.95 * MB, "shadow")])
def test_limits_beyond_a_changed_one_are_bounded_by_recorded_throttle(
    asked: Asked, proposed: float, mode: str | None
) -> None:
    """Under more than it ever had nobody is held longer than was recorded; where all was held, and in no shadow."""
    name = "changed" if mode is None else f"changed in {mode}"
    units = by_unit(asked(name, Policy({EACH_CLIENT_ID: {PRODUCE: proposed}})))
    row = units["", 1, PRODUCE.value, "", "held"]
    recorded_s = row["before_throttled_s"]
    if proposed < 0.7 * MB:
        assert row["throttled_least_s"] >= recorded_s
    else:
        assert (row["throttled_most_s"] <= recorded_s) is (mode is None)


def test_a_raised_quota_is_not_called_harmless(asked: Asked) -> None:
    (row,) = by_unit(asked("held alone", Policy({EACH_CLIENT_ID: {PRODUCE: 0.8 * MB}}))).values()
    assert row["verdict"] != "no"
    assert row["throttled_most_s"] > 0


@pytest.mark.parametrize("mode", MODES)
def test_whatif_of_unthrottled_recording_is_exact(asked: Asked, mode: str) -> None:
    """In shadow the records say what would have been: nobody was throttled, and the demand is all there."""
    answer = asked(f"free in {mode}", TIGHT)
    (row,) = by_unit(answer).values()
    assert row["answer"] == "exact"
    assert row["before_throttled_s"] == row["before_throttled_requests"] == 0
    assert row["throttled_s"] == replayed(FREE.demand, [MB]).throttled_s[0, 0] > 0
    assert f"recorded in mode {mode}" in comparison.text(answer, 5)


def test_whatif_over_long_intervals_says_bursts_are_hidden(asked: Asked) -> None:
    """Steady overload is seen; a burst within an interval is not, and that is said."""
    answer = asked("ten seconds", TIGHT)
    units = {row["client_id"]: row for row in answer.units.to_pylist()}
    by_second = replayed(Load("alice", "steady", np.full(300, 1.3 * MB)).demand, [MB])
    assert units["steady"]["throttled_s"] == pytest.approx(by_second.throttled_s[0, 0], abs=2)
    assert units["steady"]["recorded_bytes"] == 30 * 13 * MB
    assert units["burst"]["verdict"] == "no"
    assert "intervals are 10 s long" in comparison.text(answer, 5)


def test_gaps_are_counted_and_said(asked: Asked) -> None:
    answer = asked("gaps", TIGHT)
    assert answer.circumstances.missing_documents == 8
    text = comparison.text(answer, 5)
    assert f"8 of {2 * SECONDS} documents are missing" in text
    assert "at least" in text


def test_a_proxy_that_idles_has_no_gap(found: WhatIf) -> None:
    assert found.circumstances.missing_documents == 0
    assert found.circumstances.notes() == []


@pytest.mark.parametrize(("samples", "verdict"), [(11, "yes"), (21, "no")])
def test_whatif_replays_with_the_recorded_window(asked: Asked, samples: int, verdict: str) -> None:
    answer = asked(f"window {samples}", TIGHT)
    assert answer.circumstances.window == Window(samples, 1000)
    [row] = by_unit(answer).values()
    assert row["verdict"] == verdict


def test_refused_connections_are_no_whatif_unit(asked: Asked) -> None:
    (found,) = by_unit(asked("refused", TIGHT)).values()
    assert found["client_id"] == "over"


def test_whatif_over_a_period_without_use_is_refused(asked: Asked) -> None:
    with pytest.raises(AnalysisError, match=r"nobody produced or fetched anything from 2026-03-01 .*00 to"):
        asked("without use", TIGHT)


def test_whatif_text_lists_throttled_counters_up_to_top(found: WhatIf) -> None:
    text = comparison.text(found, 3)
    assert "quotas-0: 6 of 8 counters would be throttled; 0 were" in text
    assert "over producing" in text
    assert "edge-1, broker 1" in text
    assert "and 3 more that would be throttled (--top)" in text
    assert max(map(len, text.splitlines())) < 180


def test_whatif_page_escapes_names_and_loads_nothing(found: WhatIf, asked: Asked) -> None:
    html = render(found)
    assert "<em>6 of 8 counters</em> would be throttled" in html
    assert html.count("<tr>") == 1 + 6
    assert "http" not in html.replace("http-equiv", "")
    page = render(asked("wicked", Policy({EACH_USER: {PRODUCE: MB}})))
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def quota_file(folder: Path, text: str) -> str:
    path = folder / "proposed.yaml"
    path.write_text(f"quotas:\n{text}", encoding="utf-8")
    return str(path)


def test_whatif_with_fail_if_throttled_exits_with_1(recorded: str, tmp_path: Path) -> None:
    path = quota_file(
        tmp_path, "  - {entity: {client-id: {default: true}}, producer_byte_rate: 1MB, consumer_byte_rate: 1200kB}\n"
    )
    arguments = ["whatif", "--warehouse", recorded, "--quotas", path, "--out", str(tmp_path / "out"), "--json"]
    ran = CliRunner().invoke(analyze, [*arguments, "--fail-if-throttled"])
    assert ran.exit_code == 1, ran.output
    (scenario,) = json.loads(ran.stdout)["scenarios"]
    assert scenario["quotas"] == path
    assert scenario["totals"]["throttled"] == len(scenario["units"]) == 6
    assert (tmp_path / "out" / "whatif.html").exists()
    assert pq.read_table(tmp_path / "out" / "whatif").num_rows == len(LOADS)


def test_whatif_without_throttle_exits_with_0(recorded: str, tmp_path: Path) -> None:
    path = quota_file(tmp_path, "  - {entity: {client-id: {default: true}}, producer_byte_rate: 1GB}\n")
    ran = CliRunner().invoke(analyze, ["whatif", "--warehouse", recorded, "--quotas", path, "--fail-if-throttled"])
    assert ran.exit_code == 0, ran.output
    assert "0 of 8 counters would be throttled; 0 were" in ran.stdout


def test_whatif_with_bad_quota_file_names_each_place(tmp_path: Path) -> None:
    path = quota_file(tmp_path, "  - {entity: {user: alice}, producer_byte_rate: fast}\n  - {entity: {}}\n")
    ran = CliRunner().invoke(analyze, ["whatif", "--warehouse", "nowhere", "--quotas", path])
    assert ran.exit_code == 2
    assert f"{path}:2:49: quotas[0].producer_byte_rate" in ran.stderr
    assert f"{path}:3" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_whatif_over_an_empty_period_exits_with_2(recorded: str, tmp_path: Path) -> None:
    path = quota_file(tmp_path, "  - {entity: {user: alice}, producer_byte_rate: 1MB}\n")
    ran = CliRunner().invoke(analyze, ["whatif", "--warehouse", recorded, "--quotas", path, "--from", "2031-01-01"])
    assert ran.exit_code == 2
    assert "no usage records" in ran.stderr


def test_whatif_job_matches_the_kernel_for_each_workload(asked: Asked) -> None:
    """Each workload in one shape of requests; its connections and sizes are what rows say of them."""
    units = by_unit(asked("workloads", TIGHT))
    for load in workloads():
        outcome = replayed(load.demand, [MB])
        row = units["", 1, PRODUCE.value, "", load.client_id]
        assert row["throttled_s"] == outcome.throttled_s[0, 0]
        assert row["sent_bytes"] == pytest.approx(outcome.sent_bytes[0, 0])
