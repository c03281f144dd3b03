"""docs/managing-quotas.md, typed in front of a real cluster."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.kafka import KafkaCluster
from tests.harness.sluice import SluiceProcess
from tests.proxy.manage.page import PAGE, Shell, typed

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """One of its own: default quotas are set."""
    with KafkaCluster() as running:
        yield running


@pytest.fixture
def shell(cluster: KafkaCluster) -> Iterator[Shell]:
    shell = Shell({"broker:9092": cluster.bootstrap})
    yield shell
    for who in ("user=alice", "user-default", "user=bob", "user=eve"):
        shell.run(f"sluice quotas delete --bootstrap-server broker:9092 {who}")
    assert shell.run("sluice quotas describe --bootstrap-server broker:9092") == ""


def test_quotas_applied_to_the_proxy_are_in_its_quota_file(
    cluster: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is applied to the proxy is in its quota file, beside what somebody else has written there."""
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")
    settings = {"quotas": {"admins": ["ANONYMOUS"]}}
    with SluiceProcess(cluster.bootstrap, cluster.node_ids, settings=settings) as sluice:
        shell = Shell({"sluice:9092": sluice.bootstrap})
        assert typed(text, frozenset(("console proxy",)), shell) == text
        target = "--bootstrap-server sluice:9092"
        shell.run(f"sluice quotas alter {target} user=eve producer_byte_rate=1MiB")
        Path("quotas.yaml").write_text("quotas:\n  - {entity: {user: alice}, producer_byte_rate: 10MiB}\n")
        assert shell.run(f"sluice quotas apply quotas.yaml {target} --yes").endswith(
            "kafka://sluice:9092: 1 of 1 made\n"
        )
        assert shell.run(f"sluice quotas describe {target} --user alice") != ""
        Path("quotas.yaml").write_text("quotas: []\n")
        assert shell.run(f"sluice quotas apply quotas.yaml {target} --yes").endswith("1 of 1 made\n")
        left = shell.run(f"sluice quotas describe {target}")
        assert left == "Quota configs for user-principal 'eve' are producer_byte_rate=1048576.0\n"


def test_managing_quotas_page_commands_print_as_documented(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")
    assert typed(text, frozenset(("console", "console broker")), shell) == text
