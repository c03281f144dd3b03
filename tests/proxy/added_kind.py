"""What the proxy has of a quota kind by its row alone; run by tests/quotas/test_added_kind.py, in a copy with it."""

import json
import os
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from config.problems import ConfigError
from proxy.admin.metrics import Renderer
from proxy.admin.series import divide
from proxy.usage.accounts import Accounts
from proxy.usage.documents import Documents
from proxy.usage.meters import Meters
from proxy.usage.records import COLUMNS, Recorder
from quotas import kinds
from quotas.engine import Engine
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from quotas.stores.file import load
from tests.proxy.snapshots import EMPTY, rendered, shows

KIND = QuotaKind(os.environ["ADDED_KIND"])
COLUMN, LIMIT, USAGE, CHARGED = {
    "transaction_rate": ("commit_halves", "limit_commits_per_second", "usage_commits_per_second", "commits_total"),
    "request_percentage": ("request_thread_us", "limit_percent", "usage_percent", "percent_seconds_total"),
}[KIND]
ALICE = Entity(user="alice")


def test_it_is_the_copy_that_is_looked_at() -> None:
    assert Path(kinds.__file__).parent.parent == Path.cwd()
    assert KIND in kinds.CLIENT_KINDS


def test_the_quota_file_takes_it_without_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "quotas.yaml"
    path.write_text(f"quotas: [{{entity: {{user: alice}}, {KIND}: 2.5}}]")
    loaded = load(path)
    assert loaded.policy.limits == {ALICE: {KIND: 2.5}}
    assert loaded.warnings == ()
    for wrong, said in (
        (f"{{user: alice}}, {KIND}: 1MiB", "number"),
        (f"{{ip: 10.0.0.1}}, {KIND}: 1", "is a limit of"),
    ):
        path.write_text(f"quotas: [{{entity: {wrong}}}]")
        with pytest.raises(ConfigError, match=said):
            load(path)


def test_an_added_kind_is_in_usage_records_where_there_is_something_of_it() -> None:
    engine, meters = Engine(Policy()), Meters(100)
    listener = Accounts(meters, engine, "PLAIN")
    recorder = Recorder(meters, [listener], engine)
    documents = Documents({}, lambda: (0, 0))

    def rows() -> dict[str, list[object]]:
        [columns] = [each for each in recorder.take(1000) if each is not None]
        found: dict[str, list[object]] = json.loads(documents.document(columns, 0, 1000).value)["rows"]
        return found

    alice, bob = (listener.hold(1, user, "app").meter for user in ("alice", "bob"))
    alice.other_requests = bob.other_requests = 1
    assert tuple(rows()) == COLUMNS
    engine.apply(Policy({ALICE: {KIND: 5.0}}), 0)
    use = alice.use_of(KIND)
    use.used += 700
    use.requests += 3
    alice.count_throttle(KIND, 420, now_ms=900)
    bob.other_requests = 1
    found = rows()
    word = KIND.row.word
    assert tuple(found) == (*COLUMNS, *KIND.row.columns)
    assert {name: found[name] for name in KIND.row.columns} == {
        COLUMN: [700, 0],
        f"{word}_requests": [3, 0],
        f"{word}_limit": [5.0, None],
        f"{word}_rule": ["user=alice", None],
        f"{word}_counter_user": ["alice", None],
        f"{word}_counter_client_id": [None, None],
        f"{word}_throttled": [1, 0],
        f"{word}_throttle_ms": [420, 0],
        f"{word}_muted_ms": [100, 0],
    }


def test_it_has_counters_and_metrics() -> None:
    engine = Engine(Policy({ALICE: {KIND: 5.0}}))
    bound = engine.resolve("alice", "app", KIND, 1)
    throttle_ms = bound.charge(500.0, 1000)
    assert (throttle_ms <= 1000) is KIND.row.capped
    bound.count_throttle(throttle_ms)
    families = text_string_to_metric_families(rendered(Renderer(divide(20_000)), shows(*engine.usage(1000))).decode())
    whose = {"kind": KIND.value, "user": "alice", "client_id": "", "broker": "1"}
    samples = [sample for family in families for sample in family.samples if sample.labels.get("user") == "alice"]
    assert {sample.name: sample.value for sample in samples} == {
        f"sluice_quota_{LIMIT}": 5.0,
        f"sluice_quota_{USAGE}": 50.0,
        f"sluice_quota_{CHARGED}": 500.0,
        "sluice_quota_usage_ratio": 10.0,
        "sluice_quota_throttle_seconds_total": throttle_ms / 1000,
        "sluice_quota_throttled_responses_total": 1.0,
    }
    assert all(sample.labels == whose for sample in samples if "rule" not in sample.labels)
    assert f'sluice_delay_queue_size{{kind="{KIND}"}} 0.0' in rendered(Renderer(divide(20_000)), EMPTY).decode()
