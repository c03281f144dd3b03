"""docs/managing-quotas.md, typed in front of a real cluster."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.kafka import KafkaCluster
from tests.proxy.manage.page import PAGE, Shell, typed

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


@pytest.fixture
def shell(cluster: KafkaCluster) -> Iterator[Shell]:
    shell = Shell({"broker:9092": cluster.bootstrap})
    yield shell
    for who in ("user=alice", "user-default", "user=bob", "user=eve"):
        shell.run(f"sluice quotas delete --bootstrap-server broker:9092 {who}")
    assert shell.run("sluice quotas describe --bootstrap-server broker:9092") == ""


def test_its_commands_print_what_it_says(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")
    assert typed(text, frozenset(("console", "console broker")), shell) == text
