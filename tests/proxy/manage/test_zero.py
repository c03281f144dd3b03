"""A byte rate of 0 in a store of Kafka's, which limits nobody: described as brokers do, and taken over as no limit."""

import json
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from proxy.manage import target
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from quotas.stores.base import Loaded
from quotas.stores.file import load
from quotas.stores.file_store import FileStore
from quotas.stores.unlimited import MOST
from tests.proxy.manage.conftest import Run

ALICE, RATE = Entity(user="alice"), QuotaKind.PRODUCER_BYTE_RATE
AS_FILE = "quotas:\n  - {entity: {user: alice}, producer_byte_rate: 9223372036854775807}\n"


class _OfKafka(FileStore):
    """As ZooKeeper with {"producer_byte_rate": "0"}."""

    def _load(self) -> Loaded:
        return replace(super()._load(), policy=Policy({ALICE: {RATE: inf}}), places={ALICE: "/config/users/alice"})


@pytest.fixture
def zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "zero.yaml"
    path.write_text("quotas: []\n")
    monkeypatch.setattr(target, "open_zookeeper", lambda *_: _OfKafka(path))
    monkeypatch.setattr(target, "open_store", lambda s: (_OfKafka if s.path == path else FileStore)(s.path))
    return path


def test_byte_rate_of_0_is_described_as_brokers_do(run: Run, zero: Path) -> None:
    said = run("describe --file {}", zero).stdout
    assert said == "Quota configs for user-principal 'alice' are producer_byte_rate=0.0\n"
    assert run("describe --file {} -o table", zero).stdout.splitlines()[1].split()[:2] == ["alice", "0"]
    [quota] = json.loads(run("describe --file {} -o json", zero).stdout)["quotas"]
    assert quota["limits"] == {"producer_byte_rate": 0}
    explained = run("explain --file {} --user alice", zero).stdout
    assert "producer_byte_rate: no limit at each broker, of user=alice" in explained
    assert "inf" not in explained


def test_byte_rate_of_0_is_exported_as_no_limit(run: Run, zero: Path, tmp_path: Path) -> None:
    done = run("export --file {} --strict", zero)
    assert (done.exit_code, done.stderr) == (0, "")
    file = tmp_path / "exported"
    file.write_text(done.stdout)
    assert run("import {} --file {}", file, zero).stdout == "nothing to change\n"
    here = tmp_path / "here.yaml"
    here.write_text("quotas: []\n")
    assert run("import --from zookeeper --from-address zk:2181 --file {} --yes", here).exit_code == 0
    [limits] = load(here).policy.limits.values()
    assert [(kind, float(limit)) for kind, limit in limits.items()] == [(RATE, MOST)]


def test_byte_rate_of_0_is_no_difference_from_unlimited_rate(run: Run, zero: Path, tmp_path: Path) -> None:
    desired = tmp_path / "desired.yaml"
    desired.write_text(AS_FILE)
    assert run("diff {} --file {}", desired, zero).exit_code == 0
    desired.write_text(AS_FILE.replace("9223372036854775807", "1024"))
    assert (
        "~ user=alice producer_byte_rate 9223372036854775807 → 1024" in run("diff {} --file {}", desired, zero).stdout
    )
